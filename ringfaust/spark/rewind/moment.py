"""A moment of the past: all steps of a partition up to one, or all up to a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.errors import RingfaustError


class BadMoment(RingfaustError):
    """A moment that cannot be read, or that the events know nothing of."""


@dataclass(frozen=True, slots=True)
class AtStep:
    """After this step of a partition; its last lines are those with this number."""

    partition: int
    step: int

    def __str__(self) -> str:
        return f"step {self.partition}/{self.step}"


@dataclass(frozen=True, slots=True)
class AtTime:
    """After all steps of that time or before."""

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
        return f"{self.topic}/{self.partition}/{self.offset}"


Moment = AtStep | AtTime | AtOffset
Settled = AtStep | AtTime


def read_time(text: str) -> AtTime:
    """Milliseconds since 1970, or ISO 8601; UTC where it names no zone.

    Raises:
        BadMoment: it is neither.
    """
    if text.isascii() and text.isdigit():
        return AtTime(int(text))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadMoment(
            f"{text!r} is no time: write 2026-03-01T12:00:00, with a zone if it is not UTC, or "
            "milliseconds since 1970"
        ) from None
    return AtTime(round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


def read_step(text: str) -> AtStep:
    """`partition/step`.

    Raises:
        BadMoment: it is not.
    """
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise BadMoment(f"{text!r} is no step: write partition/step, such as 0/1234")
    return AtStep(*map(int, parts))


def read_offset(text: str) -> AtOffset:
    """`topic/partition/offset`, as the events' `by`.

    Raises:
        BadMoment: it is not.
    """
    topic, _, place = text.partition("/")
    parts = place.split("/")
    if not topic or len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise BadMoment(
            f"{text!r} is no offset: write topic/partition/offset, such as orders/0/1234"
        )
    return AtOffset(topic, *map(int, parts))


def read_moment(text: str) -> Moment:
    """Any of the three, told apart by how many parts it has.

    Raises:
        BadMoment: it is none of them.
    """
    slashes = text.count("/")
    if slashes == 0:
        return read_time(text)
    return read_step(text) if slashes == 1 else read_offset(text)


def until(moment: Settled) -> Column:
    """Is a line of that moment or before?"""
    if isinstance(moment, AtTime):
        return F.col("time_ms") <= moment.time_ms
    return (F.col("partition") == moment.partition) & (F.col("step") <= moment.step)


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose contents are asked for, and when."""

    queue: str
    moment: Moment


def settle(lines: DataFrame, asked: Sequence[Asked], hop_topic: str) -> list[Settled]:
    """The steps that offsets stand for; other moments as they are. One Spark job for all.

    A record may have left no line: `list` never does, and a record of a queue that is not pulled
    has not yet. So the last record at or before the offset counts that has. Of a topic that takes
    the hop, it is the last that was sent to this queue.

    Args:
        lines: as of `read_lines`.
        asked: any.
        hop_topic: the application's.

    Raises:
        BadMoment: no record of that partition up to that offset has left a line.
    """
    found: dict[int, AtStep] = {}
    rows = [
        (number, each.queue, f"{at.topic}/{at.partition}", at.offset)
        for number, each in enumerate(asked)
        if isinstance(at := each.moment, AtOffset)
    ]
    if rows:
        last = _last_steps(lines, rows, hop_topic)
        found = {number: last.get((number, True)) or last[number, False] for number, _ in last}
    for number, *_ in rows:
        if number not in found:
            raise BadMoment(
                f"no record up to {asked[number].moment} of that partition is told of in the "
                "events; does this application read the topic?"
            )
    return [
        found[number] if isinstance(each.moment, AtOffset) else each.moment
        for number, each in enumerate(asked)
    ]


def _last_steps(
    lines: DataFrame, rows: list[tuple[int, str, str, int]], hop_topic: str
) -> dict[tuple[int, bool], AtStep]:
    """By row's number, and by whether the topic is read directly or takes the hop."""
    asks = lines.sparkSession.createDataFrame(
        rows, "ask int, asked_queue string, place string, to_offset long"
    )
    # Step 0 is that of a record that was unreadable before the hop: of no partition of ours.
    caused = lines.filter((F.col("event") != "unreadable") | (F.col("step") > 0))
    sent = lines.filter(
        F.col("by").startswith(f"{hop_topic}/") & F.col("event").isin("added", "scheduled")
    )
    found = (
        _placed(caused, "by", direct=True)
        .unionByName(_placed(sent, "source", direct=False))
        .join(F.broadcast(asks), "place")
        .filter(F.col("at_offset") <= F.col("to_offset"))
        .filter(F.col("direct") | (F.col("queue") == F.col("asked_queue")))
        .groupBy("ask", "direct")
        .agg(F.max(F.struct("step", "partition")).alias("last"))
        .collect()
    )
    return {
        (row["ask"], row["direct"]): AtStep(row["last"]["partition"], row["last"]["step"])
        for row in found
    }


def _placed(lines: DataFrame, column: str, *, direct: bool) -> DataFrame:
    """Lines by the record that the column names: `place`, its topic and partition, and offset."""
    return lines.select(
        F.substring_index(column, "/", 2).alias("place"),
        F.substring_index(column, "/", -1).try_cast("long").alias("at_offset"),
        F.lit(direct).alias("direct"),
        "queue",
        "step",
        "partition",
    )
