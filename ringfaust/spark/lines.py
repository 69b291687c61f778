"""The lines of the events topic as rows, one for each transition. All of it runs in the JVM.

And SQL about the states of messages, as `ringfaust.protocol.lifecycle` declares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ringfaust.protocol.lifecycle import (
    ABOUT_MESSAGES,
    BY,
    EVENT,
    EVENTS,
    NEW,
    STEP,
    TIME,
    Event,
    Kind,
    Move,
)

_TYPES = {
    Kind.TEXT: T.StringType(),
    Kind.LONG: T.LongType(),
    Kind.INT: T.IntegerType(),
    Kind.SIGNED: T.IntegerType(),
    Kind.FLAG: T.BooleanType(),
    Kind.SETTINGS: T.StringType(),
    Kind.COUNTS: T.StringType(),
}
REFUSAL = "event = 'dead' AND sequence IS NULL"
"""SQL: the line reports a refused send, dead without ever having been in the queue."""
_ONLY_RAW = ("topic", "partition", "first", "last", "gaps")
"""What gaps say of their input topic: each row has the partition of its record."""
FIELDS = {
    field.name: field
    for event in EVENTS.values()
    for field in (STEP, EVENT, TIME, BY, *event.fields)
    if field.name not in _ONLY_RAW
}
"""By name, what the lines of events have."""
LINE = T.StructType([T.StructField(name, _TYPES[field.kind]) for name, field in FIELDS.items()])
"""The fields of all events. New ones go last, and become columns of a lake that exists."""


def read_lines(records: DataFrame, *more: str) -> DataFrame:
    """Split records of the events topic into lines.

    Args:
        records: with at least the columns partition, offset, timestamp and value.
        more: other columns of the records, which each of their lines gets.

    Returns:
        partition, offset and timestamp of the record; `line`, counted from 0 within the record;
        `raw`, the text; and the fields of LINE. `step` or `event` is null for a line that is not a
        JSON object or lacks them: such a line belongs in quarantine. `sequence` is null where the
        line has 0: the message was never in the queue.
    """
    place = ["partition", "offset", "timestamp", *more]
    value = F.col("value").cast("string")
    texts = records.where(value.isNotNull()).select(
        *place,
        F.split(value, "\n").alias("texts"),
        (~F.contains(value, F.lit("["))).alias("is_flat"),
    )
    together = texts.select(*place, "texts", _parse_together().alias("together"))
    is_whole = F.size("together") == F.size("texts")
    one_by_one = F.transform("texts", lambda text: F.from_json(text, LINE))
    fields = F.when(is_whole, F.col("together")).otherwise(one_by_one)
    both = F.arrays_zip(F.col("texts").alias("raw"), fields.alias("fields"))
    # No list is empty, but without `outer` Spark would check that first, and parse twice.
    lines = together.select(*place, F.posexplode_outer(both).alias("line", "both"))
    lines = lines.select(*place, "line", "both.raw", "both.fields.*")
    return lines.withColumn("sequence", F.nullif("sequence", F.lit(0)))


def _parse_together() -> Column:
    """The lines of a record parsed as one JSON array, which costs less than parsing each line.

    Null if that is not safe. Where every line begins an object and none contains an array, no
    object can span two lines: either each line is one element, or the numbers differ.
    """
    is_safe = F.col("is_flat") & F.forall("texts", lambda text: F.startswith(text, F.lit("{")))
    array = F.concat(F.lit("["), F.array_join("texts", ",\n"), F.lit("]"))
    return F.when(is_safe, F.from_json(array, T.ArrayType(LINE)))


def number_generations(lines: DataFrame, *queue: str) -> DataFrame:
    """Add `generation` and `generations`: how often the queue was deleted before, and in total.

    If a deleted queue is created again, its sequence numbers restart at 1.

    `queue` are the columns that tell queues apart.
    """
    deleted = lines.filter("event = 'deleted'")
    found = deleted.groupBy(*queue).agg(F.collect_set("step").alias("ends"))
    ends = F.coalesce("ends", F.array().cast("array<long>"))
    return (
        lines.join(F.broadcast(found), list(queue), "left")
        .withColumn("generation", F.size(F.filter(ends, lambda end: end < F.col("step"))))
        .withColumn("generations", F.size(ends))
        .drop("ends")
    )


def any_of(names: Iterable[str]) -> str:
    """SQL: whether a line is one of these events."""
    return f"event IN ({_texts(names)})"


def _texts(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _applies(event: Event, move: Move) -> str:
    """Whether a line is of the event, and makes the move if it makes none before it."""
    is_event = f"event = '{event.name}'"
    if move.reasons:
        return f"{is_event} AND reason IN ({_texts(move.reasons)})"
    return f"{is_event} AND coalesce({move.unless}, 0) = 0" if move.unless else is_event


def _may_follow(event: Event, move: Move) -> str:
    """Whether the move may follow the state `was`."""
    if move.before == (NEW,):
        return "was IS NULL"
    same = " AND delivery = was_delivery" if event.ends_named_delivery(move) else ""
    return f"was IN ({_texts(move.before)}){same}"


def _cases() -> Iterator[str]:
    """The events that always lead to one state by that state, then the others."""
    alike: dict[str, list[str]] = {}
    others = []
    for event in map(EVENTS.__getitem__, ABOUT_MESSAGES):
        after = {move.after for move in event.moves}
        if len(after) == 1:
            alike.setdefault(after.pop(), []).append(event.name)
        else:
            others += [f"WHEN {_applies(event, m)} THEN '{m.after}'" for m in event.moves]
    for state, names in alike.items():
        yield f"WHEN {any_of(names)} THEN '{state}'"
    yield from others


STATE_AFTER = f"CASE {' '.join(_cases())} END"
"""SQL: the state of the message after a line about it; null if the line changes no state."""

_MOVES = [(EVENTS[name], move) for name in ABOUT_MESSAGES for move in EVENTS[name].moves]
_LEGAL = " ".join(f"WHEN {_applies(*each)} THEN {_may_follow(*each)}" for each in _MOVES)
IS_LEGAL = f"coalesce(CASE {_LEGAL} END, false)"
"""SQL: whether a line may follow the state `was` of its message (null: none) and its delivery
`was_delivery`."""
