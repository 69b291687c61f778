"""A moment of the past: all steps of a partition up to one, or all up to a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

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
    found: dict[Asked, Settled] = {}
    columns: dict[Asked, list[Column]] = {}
    for each in asked:
        if isinstance(each.moment, AtOffset):
            columns[each] = _last_step(each.queue, each.moment, hop_topic)
        else:
            found[each] = each.moment
    if columns:
        rows = lines.agg(*chain.from_iterable(columns.values())).head()
        assert rows is not None
        for index, each in enumerate(columns):
            at = rows[2 * index] or rows[2 * index + 1]
            if at is None:
                raise BadMoment(
                    f"no record up to {each.moment} of that partition is told of in the events; "
                    "does this application read the topic?"
                )
            found[each] = AtStep(at["partition"], at["step"])
    return [found[each] for each in asked]


def _last_step(queue: str, moment: AtOffset, hop_topic: str) -> list[Column]:
    """Of a record that was read from its topic directly, and of one that took the hop."""
    place = f"{moment.topic}/{moment.partition}/"
    step = F.struct("step", "partition")
    # Step 0 is that of a record that was unreadable before the hop: of no partition of ours.
    direct = _up_to("by", place, moment.offset) & (
        (F.col("event") != "unreadable") | (F.col("step") > 0)
    )
    hopped = (
        F.col("by").startswith(f"{hop_topic}/")
        & F.col("event").isin("added", "scheduled")
        & (F.col("queue") == queue)
        & _up_to("source", place, moment.offset)
    )
    return [F.max(F.when(direct, step)), F.max(F.when(hopped, step))]


def _up_to(name: str, place: str, offset: int) -> Column:
    """Does the column name a record of the place up to the offset?"""
    number = F.substring_index(F.col(name), "/", -1).try_cast("long")
    return F.col(name).startswith(place) & (number <= offset)
