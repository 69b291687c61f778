"""Records and events tell the same: each told record is there, once, in order, unaltered."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.findings import (
    ALTERED,
    DISORDERED,
    DOUBLED,
    MISSING,
    UNEXPLAINED,
    finding,
    shown,
)
from ringfaust.spark.audit.lifecycles import once
from ringfaust.spark.audit.sources import UNREADABLE, position
from ringfaust.spark.lines import is_refusal

_SAID = {
    Role.DISPATCHED: ("queue", "sequence", "id", "source", "consumer", "attempt", "handovers"),
    Role.EVICTED: (
        "id", "reason", "cause", "ready", "ring_size", "age_ms", "handovers", "time_ms",
    ),
    Role.DEAD: ("id", "reason", "consumer", "text", "time_ms"),
    UNREADABLE: ("reason", "text", "time_ms"),
}  # fmt: skip
"""What both tell of a record, beside what they are matched by."""
_BUCKET = 100_000
"""Offsets whose order is looked at together."""


def records(outputs: DataFrame) -> DataFrame:
    """The output records with what they are matched by.

    Returns:
        All columns; `key`; `said`; `copy`, more than 1 where the very same record stands before.
    """
    frame = outputs.withColumns({"key": _key(), "said": _said()})
    same = Window.partitionBy("role", "partition", "key", "content").orderBy("offset")
    # One shuffle for this window and the join on the same columns.
    frame = frame.repartition("role", "partition", "key")
    return frame.withColumn("copy", F.row_number().over(same))


def _key() -> Column:
    """What names a record within its topic and partition, in records and events alike."""
    role = F.col("role")
    of_message = F.concat_ws("\0", "queue", F.col("sequence").cast("string"), "source")
    return (
        F.when(role == str(Role.DISPATCHED), F.col("delivery").cast("string"))
        .when(role == UNREADABLE, F.col("source"))
        .otherwise(of_message)
    )


def _said() -> Column:
    said = F.lit("")
    for role, fields in _SAID.items():
        texts = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in fields]
        said = F.when(F.col("role") == str(role), F.concat_ws(" \u00b7 ", *texts)).otherwise(said)
    return said


def _told(told: DataFrame) -> DataFrame:
    """The records that there should be."""
    event = F.col("event")
    refused = told.filter(is_refusal() & (F.col("nth") == 1)).withColumn("sequence", F.lit(0))
    of_messages = once(told).filter(event.isin("dispatched", "evicted", "expired", "dead"))
    of_messages = of_messages.unionByName(refused)
    of_messages = of_messages.withColumns({
        "role": F.when(event == "expired", "dead").otherwise(event),
        "reason": F.when(event == "expired", "expired").otherwise(F.col("reason")),
        # Where it entered is not told, its id often is its source.
        "source": F.coalesce("source", "id"),
    })  # fmt: skip
    unreadable = told.filter("nth = 1 and event = 'unreadable'")
    unreadable = unreadable.withColumns({"role": F.lit(UNREADABLE), "source": F.col("by")})
    both = of_messages.unionByName(unreadable).withColumns({"key": _key(), "said": _said()})
    return both.select(
        "role", "partition", "key",
        *[
            F.col(name).alias(f"told_{name}")
            for name in ("said", "queue", "sequence", "id", "source", "step", "offset", "line")
        ],
    )  # fmt: skip


def matched(told: DataFrame, seen: DataFrame) -> DataFrame:
    """Events and records side by side; either may be missing.

    Args:
        told: as of `lives.tell`.
        seen: as of `records`.
    """
    first = seen.filter("copy = 1")
    twin = Window.partitionBy("role", "partition", "key").orderBy("offset")
    first = first.withColumn("twin", F.row_number().over(twin))
    return _told(told).join(first, ["role", "partition", "key"], "full_outer")


def differences(pairs: DataFrame, worker: WorkerConfig) -> DataFrame:
    """Findings: records without event, events without record, and those that tell otherwise."""
    is_there, is_told = F.col("topic").isNotNull(), F.col("told_said").isNotNull()
    topic = F.concat_ws(
        "/",
        F.create_map(*[
            F.lit(text)
            for role in _SAID
            for text in (
                str(role), worker.topic(Role.DEAD if role == UNREADABLE else Role(role)),
            )
        ])[F.col("role")], F.col("partition").cast("string"),
    )  # fmt: skip
    # One that stands twice, but not word for word: the first is taken for the right one.
    kind = (
        F.when(~is_there, MISSING)
        .when(~is_told, UNEXPLAINED)
        .when(F.col("twin") > 1, DOUBLED)
        .when(F.col("said") != F.col("told_said"), ALTERED)
    )
    text = (
        F.when(~is_there, F.concat(
            F.lit("step "), shown(F.col("told_step")), F.lit(" tells of a record on "), topic,
            F.lit(" that is not there"),
        ))
        .when(~is_told, "no event tells of this record")
        .when(F.col("twin") > 1, "another record of the same, and not a copy of it")
        .otherwise(F.concat(
            F.lit("its headers say \u201c"), "said", F.lit("\u201d, the event \u201c"),
            "told_said", F.lit("\u201d"),
        ))
    )  # fmt: skip
    names = {
        name: F.coalesce(f"told_{name}", name) for name in ("queue", "sequence", "id", "source")
    }
    wrong = pairs.withColumn("kind", kind).filter("kind is not null").withColumns(names)
    record = F.when(is_there, position())
    return finding(wrong, F.col("kind"), text, record=record)


def copies(seen: DataFrame) -> DataFrame:
    """Findings: records that stand there a second time, word for word."""
    again = seen.filter("copy > 1")
    return finding(again, DOUBLED, F.lit("the same record stands there before"), record=position())


def order(pairs: DataFrame) -> DataFrame:
    """Findings: records that are not in the order of the events (R6).

    Looked at in pieces of a partition, so that no one has to sort all of it, and then from piece to
    piece.
    """
    both = pairs.filter("topic is not null and told_said is not null and twin = 1")
    # Who forwards unreadable records and who owns the partition write side by side.
    both = both.filter(F.col("role") != UNREADABLE).select(
        F.col("topic"), "partition", "offset", F.struct("told_step", "told_offset", "told_line")
        .alias("place"), F.floor(F.col("offset") / _BUCKET).alias("piece"),
        F.col("told_queue").alias("queue"), F.col("told_sequence").alias("sequence"),
        F.col("told_id").alias("id"), F.col("told_source").alias("source"),
    )  # fmt: skip
    within = Window.partitionBy("topic", "partition", "piece").orderBy("offset")
    inside = both.withColumn("before", F.lag("place").over(within)).filter("place < before")
    pieces = both.groupBy("topic", "partition", "piece").agg(
        F.min("place").alias("low"), F.max("place").alias("high"), F.min("offset").alias("offset")
    )
    pieces = pieces.withColumn(
        "before", F.lag("high").over(Window.partitionBy("topic", "partition").orderBy("piece"))
    ).filter("low < before")
    text = F.lit("it stands behind one that the events tell of later")
    return finding(inside, DISORDERED, text, record=position()).unionByName(
        finding(
            pieces.drop("partition"), DISORDERED, text,
            record=F.concat_ws("/", F.col("topic"), F.lit("from"), F.col("offset")),
        )
    )  # fmt: skip
