"""Findings: one row per faulty message or record, with everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


class Kind(StrEnum):
    """What is wrong."""

    EVICTED_WHILE_HELD = "evicted_while_held"
    MISSING = "missing"
    DOUBLED = "doubled"
    ALTERED = "altered"
    UNEXPLAINED = "unexplained"
    ILLEGAL = "illegal"
    DISORDERED = "disordered"
    DAMAGED = "damaged"


KINDS = {kind.value: kind.value for kind in Kind} | {
    Kind.EVICTED_WHILE_HELD: "evicted while a consumer held it",
    Kind.UNEXPLAINED: "without an event or a source",
    Kind.ILLEGAL: "illegal transition",
    Kind.DISORDERED: "out of order",
    Kind.DAMAGED: "unreadable",
}
"""All kinds with their descriptions, the most severe first."""

_SHAPE = {
    "kind": "string", "partition": "int", "queue": "string", "sequence": "long", "id": "string",
    "source": "string", "record": "string", "text": "string",
}  # fmt: skip
IDENTITY = ("kind", "partition", "queue", "sequence", "source", "record")
"""Two findings with the same values in these columns are the same finding."""


def finding(
    frame: DataFrame, kind: str | Column, text: Column, *, record: Column | None = None
) -> DataFrame:
    """Turn the rows of a frame, with any of the columns of a finding, into findings of a kind.

    `record` is the position of the record that shows the fault, topic/partition/offset.
    """
    none = F.lit(None)
    given = {"kind": F.lit(kind), "text": text, "record": none if record is None else record}
    has = {name: F.col(name) for name in frame.columns} | given
    return frame.select(
        *[has.get(name, none).cast(type_).alias(name) for name, type_ in _SHAPE.items()]
    )


def gather(parts: Sequence[DataFrame]) -> DataFrame:
    """Merge the findings of each message into one row, under the most severe kind.

    Some findings identify a message only by its source, others only by queue and sequence. They are
    merged where a third finding has both.
    """
    found = reduce(DataFrame.unionByName, parts)
    by_number = Window.partitionBy("partition", "queue", "sequence")
    numbered = F.col("queue").isNotNull() & F.col("sequence").isNotNull()
    found = found.withColumn(
        "source", F.when(numbered, F.coalesce("source", F.max("source").over(by_number)))
        .otherwise(F.col("source")),
    )  # fmt: skip
    by_source = Window.partitionBy("source")
    sourced = F.col("source").isNotNull() & F.col("sequence").isNull()
    known = {
        name: F.max(F.when(numbered, F.col(name))).over(by_source)
        for name in ("partition", "queue", "sequence", "id")
    }
    found = found.withColumns(
        {name: F.when(sourced, known[name]).otherwise(F.col(name)) for name in known}
    )
    rank = severity()
    # A finding without message and source is merged with no other.
    alone = F.when(F.col("source").isNull() & F.col("sequence").isNull(), F.col("record"))
    merged = found.groupBy("partition", "queue", "sequence", "source", alone.alias("alone")).agg(
        F.min_by("kind", rank).alias("kind"),
        F.max("id").alias("id"),
        F.min_by("record", F.when(F.col("record").isNotNull(), rank)).alias("record"),
        F.array_join(F.transform(
            F.array_sort(F.collect_set(F.struct(rank.alias("rank"), "text"))),
            lambda each: each["text"],
        ), "; ").alias("text"),
    )  # fmt: skip
    return merged.select(*_SHAPE)


def severity() -> Column:
    """The rank of a finding's kind: the lower, the more severe."""
    return F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))


def or_none(record: Column) -> Column:
    """The value as text, `none` for null: a null would make the whole text null."""
    return F.coalesce(record.cast("string"), F.lit("none"))
