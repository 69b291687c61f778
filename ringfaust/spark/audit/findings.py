"""What is wrong: one row for each message or record that is, with all that speaks against it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

HELD = "evicted_while_held"
MISSING = "missing"
DOUBLED = "doubled"
ALTERED = "altered"
UNEXPLAINED = "unexplained"
ILLEGAL = "illegal"
DISORDERED = "disordered"
DAMAGED = "damaged"

KINDS = {
    HELD: "evicted while a consumer held it",
    MISSING: "missing",
    DOUBLED: "doubled",
    ALTERED: "altered",
    UNEXPLAINED: "told by no event, or from nowhere",
    ILLEGAL: "a transition that cannot be",
    DISORDERED: "out of order",
    DAMAGED: "cannot be read",
}
"""All kinds, the gravest first."""

_SHAPE = {
    "kind": "string", "partition": "int", "queue": "string", "sequence": "long", "id": "string",
    "source": "string", "record": "string", "text": "string",
}  # fmt: skip
KEY = ("kind", "partition", "queue", "sequence", "source", "record")
"""What makes two findings of two audits the same."""


def finding(
    frame: DataFrame, kind: str | Column, text: Column, *, record: Column | None = None
) -> DataFrame:
    """Rows of a frame as findings.

    Args:
        frame: one row for each finding; of partition, queue, sequence, id and source what it has.
        kind: one of KINDS.
        text: what is wrong, for people.
        record: position of the record that shows it, topic/partition/offset.
    """
    none = F.lit(None)
    given = {"kind": F.lit(kind), "text": text, "record": none if record is None else record}
    has = {name: F.col(name) for name in frame.columns} | given
    return frame.select(
        *[has.get(name, none).cast(type_).alias(name) for name, type_ in _SHAPE.items()]
    )


def gather(parts: Sequence[DataFrame]) -> DataFrame:
    """All findings, those of one message in one row under the gravest kind.

    What names a message by its source alone, and what names it by queue and sequence alone, are
    brought together where a third names it by both.
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
    for name in ("partition", "queue", "sequence", "id"):
        known = F.max(F.when(numbered, F.col(name))).over(by_source)
        found = found.withColumn(f"{name}_", F.when(sourced, known).otherwise(F.col(name)))
    names = ("partition", "queue", "sequence", "id")
    found = found.drop(*names).withColumnsRenamed({f"{name}_": name for name in names})
    rank = F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))
    # What names neither a message nor a source stands for itself.
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


def shown(record: Column) -> Column:
    """Nothing where there is no value, so that a text is one in any case."""
    return F.coalesce(record.cast("string"), F.lit("none"))
