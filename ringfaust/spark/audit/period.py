"""Read the records of one period: from the end of the one before to a time, or to what is there.

A period of events and outputs ends at a time, those of inputs and commands where the events of the
period end: they name the last record that was read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.protocol.records import Role
from ringfaust.spark.audit.balance import Balance, TopicPositions, by_topic, joined
from ringfaust.spark.audit.offsets import CannotAudit, TopicOffsets
from ringfaust.spark.audit.sources import (
    AuditData,
    AuditRequest,
    checkpoint,
    inputs_of,
    last_read,
    positions,
    read_commands,
    read_events,
    read_inputs,
    read_outputs,
    read_repartition,
)
from ringfaust.spark.kafka import read_topics
from ringfaust.spark.lake.stream import OUTPUTS
from ringfaust.spark.lake.tables import read_if_any

_EARLIEST, _LATEST = -2, -1
NEAR_MS = 600_000
"""Records of one partition are at most this far from the order of their timestamps."""


class PeriodReader:
    """Reads the periods of an audit.

    With a lake, events and outputs are read from there, and those records of all other topics that
    Kafka no longer has.
    """

    def __init__(self, spark: SparkSession, request: AuditRequest, offsets: TopicOffsets) -> None:
        self._spark = spark
        worker, lake = request.worker, request.lake
        self._worker = worker
        self._offsets = offsets
        self._inputs, self._removed = inputs_of(request, offsets)
        self._events = worker.topic(Role.EVENTS)
        self._outputs = [worker.topic(role) for role in OUTPUTS]
        self._bronze = None if lake is None else read_if_any(spark, lake, "bronze", CannotAudit)

    def read(self, opening: Balance | None = None, until_ms: int | None = None) -> AuditData:
        """Read a period.

        Without an opening balance it begins with the first records. Only that of a lake may end at
        a time.
        """
        control = self._worker.topic(Role.CONTROL)
        lines = checkpoint(read_events(self._written([self._events], opening, until_ms)))
        repartition = read_repartition(self._forwarded(opening, until_ms))
        ends = None
        if until_ms is not None:
            repartition = checkpoint(repartition)
            ends = positions(last_read(lines, repartition), 1)
        outputs = read_outputs(self._written(self._outputs, opening, until_ms), self._worker)
        inputs = read_inputs(self._read_by_worker(self._inputs, opening, ends))
        commands = read_commands(self._read_by_worker([control], opening, ends))
        return AuditData(
            inputs=joined(inputs, opening, "inputs"),
            commands=joined(commands, opening, "commands"),
            repartition=repartition,
            lines=joined(lines, opening, "lines"),
            outputs=joined(outputs, opening, "outputs"),
            opening=opening,
            offsets=self._offsets,
        )

    # --- days of a lake ---------------------------------------------------------------------------

    def days(self, after_ms: int, until_ms: int) -> list[date]:
        """The days (UTC) in which a worker wrote events, from one time to another.

        Only the table's partitions are read, no records.
        """
        rows = self._lake_rows([self._events]).filter(_on_days(after_ms, until_ms))
        return sorted(row["date"] for row in rows.select("date").distinct().collect())

    def is_clean(self, until_ms: int, next_: TopicPositions) -> bool:
        """Whether a day may end at this time: every record before it has a lower offset.

        Workers stamp the records with their own clocks. If a partition changed its worker at just
        that time, the clock may have gone back a little.
        """
        near = self._lake_rows([self._events, *self._outputs]).filter(
            _between(until_ms, until_ms + NEAR_MS)
        )
        lowest = positions(near.groupBy("topic", "partition").agg(F.min("offset").alias("offset")))
        return all(offset >= next_.get(at, 0) for at, offset in lowest.items())

    # --- records ----------------------------------------------------------------------------------

    def _written(
        self, topics: Collection[str], opening: Balance | None, until_ms: int | None
    ) -> DataFrame:
        """Records that a worker or job wrote in the period."""
        if self._bronze is None:
            return read_topics(self._spark, self._worker, topics, self._from(topics, opening, None))
        rows = self._lake_rows(topics)
        if opening is None and until_ms is None:
            return rows
        if opening is None or opening.since_ms is not None:
            since_ms = opening.since_ms if opening else None
            return rows.filter(_between(since_ms or 0, until_ms))
        return rows.filter(_from_positions(topics, opening.next))

    def _forwarded(self, opening: Balance | None, until_ms: int | None) -> DataFrame:
        """The records of the hop topic, also those that no worker has processed in the period.

        A forwarder writes them when it reads the inputs, so those that come later than the period
        are of no input before its end.
        """
        rows = self._read_by_worker([self._worker.topic(Role.HOP)], opening)
        return rows if until_ms is None else rows.filter(_before(until_ms + NEAR_MS))

    def _read_by_worker(
        self,
        topics: Collection[str],
        opening: Balance | None,
        ends: TopicPositions | None = None,
    ) -> DataFrame:
        """Records that a worker or job read in the period, or until now.

        Kafka's, and those of the lake that Kafka no longer has.
        """
        there = [topic for topic in topics if topic not in self._removed]
        rows = read_topics(self._spark, self._worker, there, self._from(there, opening, ends))
        dropped = {}
        for at, (begin, _) in self._offsets.items():
            start, end = _next(opening, at), begin if ends is None else min(begin, ends.get(at, 0))
            if at[0] in topics and start < end:
                dropped[at] = (start, end)
        if self._bronze is None or not dropped:
            return rows
        kept = self._lake_rows({topic for topic, _ in dropped}).filter(in_ranges(dropped))
        columns = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
        return rows.select(columns).unionByName(kept.select(columns))

    def _from(
        self, topics: Collection[str], opening: Balance | None, ends: TopicPositions | None
    ) -> dict[str, str]:
        """Kafka's options for a period."""
        starting: TopicPositions = {}
        ending: TopicPositions = {}
        for at, (begin, end) in self._offsets.items():
            topic, partition = at
            if topic not in topics:
                continue
            start = max(begin, _next(opening, at))
            if start > end:
                raise CannotAudit(
                    f"topic {topic}, partition {partition}, ends at offset {end}, but an earlier "
                    f"audit read it up to {start}: it was deleted and created again, so its "
                    "records have the offsets of earlier ones. Begin a new lake for them"
                )
            starting[at], ending[at] = start if opening else _EARLIEST, _LATEST
            if ends is not None:
                ending[at] = max(begin, min(end, ends.get(at, 0)))
                starting[at] = min(start, ending[at])
        return {
            "startingOffsets": json.dumps(by_topic(starting)),
            "endingOffsets": json.dumps(by_topic(ending)),
        }

    def _lake_rows(self, topics: Collection[str]) -> DataFrame:
        assert self._bronze is not None, "only lakes have days"
        return self._bronze.filter(F.col("topic").isin(*topics))


def start_of(day: date) -> int:
    """The beginning of a day (UTC), in ms since 1970; 0 for one before."""
    return max(int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000), 0)


def end_of(day: date) -> int:
    """The end of a day (UTC), in ms since 1970."""
    return start_of(day + timedelta(days=1))


def day_at(at_ms: int) -> date:
    """The day (UTC) of a time."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()


def _next(opening: Balance | None, at: tuple[str, int]) -> int:
    return 0 if opening is None else opening.next.get(at, 0)


def _on_days(since_ms: int, until_ms: int | None) -> Column:
    """Rows of the days that a period touches. The table is partitioned by them."""
    rows = F.col("date") >= F.lit(day_at(since_ms))
    return rows if until_ms is None else rows & (F.col("date") <= F.lit(day_at(until_ms - 1)))


def _between(since_ms: int, until_ms: int | None) -> Column:
    """Rows of a period: from a time to before another one."""
    rows = _on_days(since_ms, until_ms)
    rows &= F.col("timestamp") >= F.timestamp_millis(F.lit(since_ms))
    return rows if until_ms is None else rows & _before(until_ms)


def _before(until_ms: int) -> Column:
    return F.col("timestamp") < F.timestamp_millis(F.lit(until_ms))


def in_ranges(ranges: Mapping[tuple[str, int], tuple[int, int]]) -> Column:
    """Rows of these offsets, by topic and partition, each before the second one.

    As SQL, whose parser turns a long chain of conditions into a balanced tree. Names of topics
    contain no quotes.
    """
    texts = [
        f"(topic = '{topic}' AND partition = {partition} AND offset >= {start} AND offset < {end})"
        for (topic, partition), (start, end) in ranges.items()
    ]
    return F.expr(" OR ".join(texts))


def _from_positions(topics: Collection[str], starts: TopicPositions) -> Column:
    """Rows of these topics from the offsets on, and all rows of other partitions."""
    texts = [
        f"(topic = '{topic}' AND partition = {partition} AND offset >= {start})"
        for (topic, partition), start in starts.items()
        if topic in topics
    ]
    for topic in topics:
        known = ", ".join(str(partition) for of, partition in starts if of == topic) or "-1"
        texts.append(f"(topic = '{topic}' AND partition NOT IN ({known}))")
    return F.expr(" OR ".join(texts))
