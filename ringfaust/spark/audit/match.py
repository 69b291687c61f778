"""Compare output records with events: each recorded output exists once, in order, unaltered.

Here `events` are the result of `lifecycles.trace`, `outputs` that of `records`, `required` that of
`expected`, and `pairs` that of `matched`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.balance import Balance, joined
from ringfaust.spark.audit.findings import Kind, finding, or_none
from ringfaust.spark.audit.lifecycles import message_events
from ringfaust.spark.audit.sources import UNDECODABLE, position
from ringfaust.spark.lines import REFUSAL

_COMPARED_FIELDS = {
    Role.DISPATCHED: ("queue", "sequence", "id", "source", "consumer", "attempt", "handovers"),
    Role.EVICTED: ("id", "reason", "cause", "ready", "ring_size", "age_ms", "handovers", "time_ms"),
    Role.DEAD: ("id", "reason", "consumer", "text", "time_ms"),
    UNDECODABLE: ("reason", "text", "time_ms"),
}  # fmt: skip
"""The fields that record and event have in common, besides those that they are matched by."""
RECORD = ("topic", "partition", "offset")
"""Columns that identify a record."""
PAIR = ("role", "partition", "key", "offset", "event_offset", "event_line")
"""Columns that identify a pair."""
_BUCKET = 100_000
"""Number of offsets whose order is checked in one piece."""


def records(outputs: DataFrame) -> DataFrame:
    """Prepare the output records for matching.

    Returns:
        All columns, and `key`, which a record is matched by; `summary`, which is compared; `copy`,
        more than 1 if the identical record occurred before.
    """
    frame = outputs.withColumns({"key": _key(), "summary": _summary()})
    same = Window.partitionBy("role", "partition", "key", "content").orderBy("offset")
    # One shuffle serves this window and the join on the same columns.
    frame = frame.repartition("role", "partition", "key")
    return frame.withColumn("copy", F.row_number().over(same))


def _key() -> Column:
    """The value that identifies a record within its topic and partition, for both sides."""
    role = F.col("role")
    of_message = F.concat_ws("\0", "queue", F.col("sequence").cast("string"), "source")
    return (
        F.when(role == str(Role.DISPATCHED), F.col("delivery").cast("string"))
        .when(role == UNDECODABLE, F.col("source"))
        .otherwise(of_message)
    )


def _summary() -> Column:
    summary = F.lit("")
    for role, fields in _COMPARED_FIELDS.items():
        texts = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in fields]
        summary = F.when(F.col("role") == str(role), F.concat_ws(" \u00b7 ", *texts)).otherwise(
            summary
        )
    return summary


def expected(events: DataFrame) -> DataFrame:
    """The output records that the events of a period require."""
    event = F.col("event")
    refused = events.filter(F.expr(REFUSAL) & (F.col("nth") == 1)).withColumn("sequence", F.lit(0))
    of_messages = message_events(events).filter(
        event.isin("dispatched", "evicted", "expired", "dead")
    )
    of_messages = of_messages.unionByName(refused)
    of_messages = of_messages.withColumns({
        "role": F.when(event == "expired", "dead").otherwise(event),
        "reason": F.when(event == "expired", "expired").otherwise(F.col("reason")),
        # If the event of its entry is missing, its id is often its source.
        "source": F.coalesce("source", "id"),
    })  # fmt: skip
    undecodable = events.filter("nth = 1 and event = 'unreadable'")
    undecodable = undecodable.withColumns(
        {"role": F.lit(UNDECODABLE), "source": F.coalesce("source", "by")}
    )
    both = of_messages.unionByName(undecodable).withColumns({"key": _key(), "summary": _summary()})
    return both.select(
        "role", "partition", "key",
        *[
            F.col(name).alias(f"event_{name}")
            for name in ("summary", "queue", "sequence", "id", "source", "step", "offset", "line")
        ],
        F.lit(False).alias("event_late"),
    )  # fmt: skip


def matched(required: DataFrame, outputs: DataFrame) -> DataFrame:
    """Join events and records; either side may be missing."""
    first = outputs.filter("copy = 1")
    duplicate = Window.partitionBy("role", "partition", "key").orderBy("offset")
    first = first.withColumn("duplicate", F.row_number().over(duplicate))
    return required.join(first, ["role", "partition", "key"], "full_outer")


def unfinished(pairs: DataFrame) -> DataFrame:
    """The pairs of a period whose other half may come in the next one.

    An event and its record are written together, but the end of a period may come between them.
    Both are in the same order, so only what comes after the last complete pair can be waiting, and
    only once.
    """
    has_record, has_event = F.col("topic").isNotNull(), F.col("event_summary").isNotNull()
    ends = pairs.filter(has_record & has_event).groupBy("role", "partition").agg(
        F.max(_place()).alias("last_place"), F.max("offset").alias("last_offset")
    )  # fmt: skip
    alone = pairs.filter(~(has_record & has_event)).join(
        F.broadcast(ends), ["role", "partition"], "left"
    )
    is_late = F.coalesce("event_late", "late")
    is_after = F.when(has_event, _place() > F.col("last_place")).otherwise(
        F.col("offset") > F.col("last_offset")
    )
    # Undecodable records are written by several tasks, so they have no common order.
    may_come = F.coalesce(is_after, F.lit(True)) | (F.col("role") == UNDECODABLE)
    return alone.filter(~is_late & may_come).drop("last_place", "last_offset")


def among(frame: DataFrame, others: DataFrame, columns: Sequence[str], how: str) -> DataFrame:
    """The rows that are among others (`left_semi`) or not (`left_anti`). A null equals a null."""
    own, rest = frame.alias("own"), others.select(*columns).alias("rest")
    same = [F.col(f"own.{name}").eqNullSafe(F.col(f"rest.{name}")) for name in columns]
    return own.join(rest, reduce(Column.__and__, same), how)


def last_places(pairs: DataFrame, opening: Balance | None) -> DataFrame:
    """The place in the events of each partition's last record: topic, partition, place."""
    found = pairs.filter("topic is not null and event_summary is not null").select(
        "topic", "partition", _place().alias("place")
    )
    both = joined(found, opening, "places")
    return both.groupBy("topic", "partition").agg(F.max("place").alias("place"))


def _place() -> Column:
    return F.struct("event_step", "event_offset", "event_line")


def differences(pairs: DataFrame, worker: WorkerConfig) -> DataFrame:
    """Findings: records without an event, events without a record, and pairs that differ."""
    has_record, has_event = F.col("topic").isNotNull(), F.col("event_summary").isNotNull()
    topic = F.concat_ws(
        "/",
        F.create_map(*[
            F.lit(text)
            for role in _COMPARED_FIELDS
            for text in (
                str(role), worker.topic(Role.DEAD if role == UNDECODABLE else Role(role)),
            )
        ])[F.col("role")], F.col("partition").cast("string"),
    )  # fmt: skip
    # Of two records that are not identical, the first is taken as the right one.
    kind = (
        F.when(~has_record, Kind.MISSING)
        .when(~has_event, Kind.UNEXPLAINED)
        .when(F.col("duplicate") > 1, Kind.DOUBLED)
        .when(F.col("summary") != F.col("event_summary"), Kind.ALTERED)
    )
    text = (
        F.when(~has_record, F.format_string(
            "the record of step %s is missing from %s", or_none(F.col("event_step")), topic,
        ))
        .when(~has_event, "there is no event for this record")
        .when(F.col("duplicate") > 1, "a second, different record of the same transition")
        .otherwise(F.format_string(
            "its headers say \u201c%s\u201d, the event \u201c%s\u201d", "summary", "event_summary",
        ))
    )  # fmt: skip
    names = {
        name: F.coalesce(f"event_{name}", name) for name in ("queue", "sequence", "id", "source")
    }
    wrong = pairs.withColumn("kind", kind).filter("kind is not null").withColumns(names)
    record = F.when(has_record, position())
    return finding(wrong, F.col("kind"), text, record=record)


def copies(outputs: DataFrame) -> DataFrame:
    """Findings: exact copies of earlier records."""
    again = outputs.filter("copy > 1")
    return finding(
        again, Kind.DOUBLED, F.lit("an exact copy of an earlier record"), record=position()
    )


def order(pairs: DataFrame, opening: Balance | None = None) -> DataFrame:
    """Findings: records that are not in the order of the events (R6).

    A partition is checked in pieces, and then from piece to piece, so that no task has to sort a
    whole partition.
    """
    both = pairs.filter("topic is not null and event_summary is not null and duplicate = 1")
    # Undecodable records may come from a forwarding task, which writes independently of the
    # partition's owner.
    both = both.filter(F.col("role") != UNDECODABLE).select(
        F.col("topic"), "partition", "offset", _place().alias("place"),
        F.floor(F.col("offset") / _BUCKET).alias("piece"),
        F.col("event_queue").alias("queue"), F.col("event_sequence").alias("sequence"),
        F.col("event_id").alias("id"), F.col("event_source").alias("source"),
    )  # fmt: skip
    within = Window.partitionBy("topic", "partition", "piece").orderBy("offset")
    inside = both.withColumn("before", F.lag("place").over(within)).filter("place < before")
    pieces = both.groupBy("topic", "partition", "piece").agg(
        F.min("place").alias("low"), F.max("place").alias("high"), F.min("offset").alias("offset")
    )
    if opening is not None:
        earlier = opening.frames.places.selectExpr(
            "topic", "partition", "-1L AS piece", "place AS high"
        )
        pieces = pieces.unionByName(earlier, allowMissingColumns=True)
    pieces = pieces.withColumn(
        "before", F.lag("high").over(Window.partitionBy("topic", "partition").orderBy("piece"))
    ).filter("low < before")
    text = F.lit("it comes after a record of a later event")
    return finding(inside, Kind.DISORDERED, text, record=position()).unionByName(
        finding(
            pieces.drop("partition"), Kind.DISORDERED, text,
            record=F.concat_ws("/", F.col("topic"), F.lit("from"), F.col("offset")),
        )
    )  # fmt: skip
