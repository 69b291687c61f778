"""A moment of the past: all steps of a partition up to one step, or all steps up to a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.errors import RingfaustError
from ringfaust.protocol.records import place_of
from ringfaust.times import moment_ms, wall_ms


class BadMoment(RingfaustError):
    """A moment that cannot be parsed, or that does not occur in the events."""


@dataclass(frozen=True, slots=True)
class AtStep:
    """After a step of a partition."""

    partition: int
    step: int
    is_last: bool = False
    """Whether it is of an offset, and no line is of that record or a later one of its topic."""

    def __str__(self) -> str:
        return f"step {self.partition}/{self.step}"


@dataclass(frozen=True, slots=True)
class AtTime:
    """After all steps up to and including a time."""

    time_ms: int

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        return at.isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class AtOffset:
    """After the last step caused by a record of the topic's partition up to this offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return place_of(self)


_PLACE = "([0-9]{1,9})/([0-9]{1,18})"
"""Larger numbers are none that Spark's columns hold."""
_STEP, _OFFSET = re.compile(_PLACE), re.compile(f"([^/]+)/{_PLACE}")
Moment = AtStep | AtTime | AtOffset
_BY_SLASHES: Sequence[type[Moment]] = (AtTime, AtStep, AtOffset)
ResolvedMoment = AtStep | AtTime
Requests = Sequence[tuple[str, ResolvedMoment]]
"""Queues, each with a moment."""


def read_moment(text: str, kind: type[Moment] | None = None) -> Moment:
    """Parse a time (see `times.moment_ms`), `partition/step`, or `topic/partition/offset`.

    Without a kind, the number of slashes decides which it is.

    Raises:
        BadMoment: the text is none.
    """
    kind = kind or _BY_SLASHES[min(text.count("/"), 2)]
    if kind is AtTime:
        try:
            return AtTime(moment_ms(text, wall_ms()))
        except ValueError as error:
            raise BadMoment(str(error)) from None
    if kind is AtStep:
        if found := _STEP.fullmatch(text):
            return AtStep(int(found[1]), int(found[2]))
        raise BadMoment(f"{text!r} is not a step: use partition/step, such as 0/1234")
    if found := _OFFSET.fullmatch(text):
        return AtOffset(found[1], int(found[2]), int(found[3]))
    raise BadMoment(f"{text!r} is not an offset: use topic/partition/offset, such as orders/0/1234")


def until(moment: ResolvedMoment) -> Column:
    """Whether a line is of the moment or before."""
    if isinstance(moment, AtTime):
        return F.col("time_ms") <= moment.time_ms
    return (F.col("partition") == moment.partition) & (F.col("step") <= moment.step)


def resolve_moments(
    lines: DataFrame, requests: Sequence[tuple[str, Moment]], repartition_topic: str
) -> list[ResolvedMoment]:
    """Replace offsets by steps; other moments stay. One Spark job resolves all of them.

    A record may have no line: `list` never has one, and a record of a paused queue has none yet. So
    the last record with a line, at or before the offset, counts. In a repartitioned topic, it is
    the last record that was sent to this queue.

    Raises:
        BadMoment: no record of that partition up to that offset has a line.
    """
    rows = [
        (number, queue, f"{at.topic}/{at.partition}", at.offset)
        for number, (queue, at) in enumerate(requests)
        if isinstance(at, AtOffset)
    ]
    found = _last_steps(lines, rows, repartition_topic) if rows else {}
    for number, *_ in rows:
        if number not in found:
            raise BadMoment(
                f"there are no events of any record of that partition up to "
                f"{requests[number][1]}; does this application read the topic?"
            )
    return [
        found[number] if isinstance(at, AtOffset) else at for number, (_, at) in enumerate(requests)
    ]


def _last_steps(
    lines: DataFrame, rows: list[tuple[int, str, str, int]], repartition_topic: str
) -> dict[int, AtStep]:
    """By number of the row, the last step. A topic that is read directly wins over a hop."""
    requests_frame = lines.sparkSession.createDataFrame(
        rows, "request int, request_queue string, place string, to_offset long"
    )
    # Step 0 belongs to a record that was undecodable before repartitioning, so to no partition.
    caused = lines.filter((F.col("event") != "unreadable") | (F.col("step") > 0))
    sent = lines.filter(
        F.col("by").startswith(f"{repartition_topic}/") & F.col("event").isin("added", "scheduled")
    )
    is_before = (F.col("at_offset") <= F.col("to_offset")) & (
        F.col("direct") | (F.col("queue") == F.col("request_queue"))
    )
    found = (
        _placed(caused, "by", direct=True)
        .unionByName(_placed(sent, "source", direct=False))
        .join(F.broadcast(requests_frame), "place")
        .groupBy("request")
        .agg(
            F.max(F.when(is_before, F.struct("direct", "step", "partition"))).alias("last"),
            F.bool_and(F.col("at_offset") < F.col("to_offset")).alias("is_last"),
        )
        .filter("last IS NOT NULL")
        .collect()
    )
    return {
        row["request"]: AtStep(row["last"]["partition"], row["last"]["step"], row["is_last"])
        for row in found
    }


def _placed(lines: DataFrame, column: str, *, direct: bool) -> DataFrame:
    """Split the position in a column into `place` (topic and partition) and `at_offset`."""
    return lines.select(
        F.substring_index(column, "/", 2).alias("place"),
        F.substring_index(column, "/", -1).try_cast("long").alias("at_offset"),
        F.lit(direct).alias("direct"),
        "queue",
        "step",
        "partition",
    )
