"""Where a rewind of a lake begins: at the last closing before the moment; and what a lake knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake.tables import QUEUE_COUNTS, TRANSITIONS, read
from ringfaust.spark.rewind.moment import AtStep, AtTime, Requests, ResolvedMoment


@dataclass(frozen=True, slots=True)
class Opening:
    """A closing of the lake."""

    rows: Sequence[Row]
    """Its rows of `queue_counts`; none: the beginning of the history."""

    def counts_of(self, queue: str, moment: ResolvedMoment) -> dict[int, Mapping[str, Any]]:
        """A queue's rows by partition, or that of the moment's partition."""
        return {
            row["partition"]: row.asDict()
            for row in self.rows
            if row["queue"] == queue
            and (not isinstance(moment, AtStep) or row["partition"] == moment.partition)
        }

    def is_before(self, queue: str, moment: ResolvedMoment) -> bool:
        """Whether it has the queue, and no line of its partitions after the moment."""
        own = self.counts_of(queue, moment).values()
        if isinstance(moment, AtStep):
            return bool(own) and all(row["step"] <= moment.step for row in own)
        return bool(own) and all(row["time_ms"] <= moment.time_ms for row in own)

    def needs(self) -> Column:
        """Whether a line is later, or about a message that may have been held.

        By bounds of columns, so that Spark skips the files of earlier days.
        """
        if not self.rows:
            return F.lit(True)
        later: Column = F.col("batch") > self.rows[0]["batch"]
        held: Column = F.lit(False)
        for row in self.rows:
            later &= ~(_is_of(row) & (F.col("step") <= row["step"]))  # such a line is repeated
            if row["oldest_sequence"] is not None:
                since = (F.col("step") > row["life"]) & (F.col("batch") <= row["batch"])
                held |= _is_of(row) & since & (F.col("sequence") >= row["oldest_sequence"])
        return later | held

    def has_counted(self, ended: Column) -> Column:
        """Whether a message that ended in this step is in the counts."""
        return reduce(
            or_, (_is_of(row) & (ended <= row["step"]) for row in self.rows), F.lit(False)
        )


def _is_of(row: Row) -> Column:
    own: Column = (F.col("partition") == row["partition"]) & (F.col("queue") == row["queue"])
    return own


BEGINNING = Opening(())
"""Before the first line."""


def find_opening(spark: SparkSession, root: str, requests: Requests) -> Opening:
    """The last closing that has each of these queues, and no line after the moments.

    The table must still have the day of the closing, and so all lines since. The driver gets a row
    for each of the queues and closings.
    """
    queues = {queue for queue, _ in requests}
    try:
        rows = read(spark, root, QUEUE_COUNTS.name).filter(F.col("queue").isin(*queues)).collect()
    except AnalysisException:  # the lake is older than this table
        return BEGINNING
    first = read(spark, root, TRANSITIONS.name).agg(F.min("date")).collect()[0][0]
    closings: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if first is not None and row["date"] >= first:
            closings[row["batch"]].append(row)
    for _, found in sorted(closings.items(), reverse=True):
        opening = Opening(found)
        if all(opening.is_before(*request) for request in requests):
            return opening
    return BEGINNING


def lines_from(spark: SparkSession, root: str, opening: Opening) -> DataFrame:
    """The lines that a rewind from a closing needs, and those of other queues."""
    return read(spark, root, TRANSITIONS.name).filter(opening.needs())


# --- up to when the lake knows the history: what happened later may not have been read yet --------


class LastLine(NamedTuple):
    """The last line of a partition."""

    step: int
    time_ms: int

    def is_before(self, partition: int, moment: ResolvedMoment) -> bool:
        """Whether the moment is later than all that is known of the partition."""
        if isinstance(moment, AtTime):
            return self.time_ms < moment.time_ms
        is_before = self.step < moment.step or moment.is_last
        return partition == moment.partition and is_before


def last_lines(lines: DataFrame, opening: Opening) -> dict[int, LastLine]:
    """By partition the last line, which these lines have, or the opening has counted."""
    greatest = [F.max(name).alias(name) for name in LastLine._fields]
    found: dict[int, LastLine] = {}
    for row in [*opening.rows, *lines.groupBy("partition").agg(*greatest).collect()]:
        step, time_ms = found.get(row["partition"], (0, 0))
        last = LastLine(max(step, row["step"] or 0), max(time_ms, row["time_ms"] or 0))
        found[row["partition"]] = last
    return found


def known_until(
    last: Mapping[int, LastLine], partitions: Collection[int], moments: Sequence[ResolvedMoment]
) -> dict[int, int]:
    """Of the partitions whose last line is before a moment: its time, in ms since 1970."""
    return {
        partition: last[partition].time_ms
        for partition in sorted(partitions)
        if any(last[partition].is_before(partition, moment) for moment in moments)
    }
