"""The lines of the events topic as rows, a row for each transition. All of it runs in the JVM."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

LINE = StructType(
    [
        StructField(name, kind)
        for kind, names in (
            (
                LongType(),
                "step sequence time_ms enqueued_ms due_ms expires_at_ms delivery size_bytes age_ms",
            ),
            (IntegerType(), "priority attempt handovers ready ring_size"),
            (
                StringType(),
                "event queue id source by group consumer reason cause text to command about what "
                "settings counts",
            ),
            (BooleanType(), "active timeout created paused"),
        )
        for name in names.split()
    ]
)
"""All that `wire/events.py` writes; `settings` and `counts` stay JSON. What it does not name is in
the raw line."""


def read_lines(records: DataFrame) -> DataFrame:
    """Records of the events topic → their lines.

    Args:
        records: columns partition, offset, timestamp, value at least.

    Returns:
        partition, offset and timestamp of the record; `line`, counted from 0 within the record;
        `raw`, the text; and the fields of LINE. Of a line that is no JSON object, or has no step
        and event, `step` or `event` is null: such ones belong into quarantine. `sequence` is null
        where the line has 0: the message never was in the queue.
    """
    place = ["partition", "offset", "timestamp"]
    value = F.col("value").cast("string")
    texts = records.where(value.isNotNull()).select(
        *place,
        F.split(value, "\n").alias("texts"),
        (~F.contains(value, F.lit("["))).alias("is_flat"),
    )
    together = texts.select(*place, "texts", _parsed_together().alias("together"))
    is_whole = F.size("together") == F.size("texts")
    one_by_one = F.transform("texts", lambda text: F.from_json(text, LINE))
    fields = F.when(is_whole, F.col("together")).otherwise(one_by_one)
    both = F.arrays_zip(F.col("texts").alias("raw"), fields.alias("fields"))
    # `outer`, though none is empty: for the other Spark would ask that first, and parse twice.
    lines = together.select(*place, F.posexplode_outer(both).alias("line", "both"))
    lines = lines.select(*place, "line", "both.raw", "both.fields.*")
    return lines.withColumn("sequence", F.nullif("sequence", F.lit(0)))


def _parsed_together() -> Column:
    """The lines of a record as one JSON array, which costs less than parsing each; null: not so.

    Where each begins an object and none holds an array, no object can span two lines: each line
    is one element, or their numbers differ.
    """
    is_safe = F.col("is_flat") & F.forall("texts", lambda text: F.startswith(text, F.lit("{")))
    array = F.concat(F.lit("["), F.array_join("texts", ",\n"), F.lit("]"))
    return F.when(is_safe, F.from_json(array, ArrayType(LINE)))


def is_refusal() -> Column:
    """Does the line tell that a send was refused, and is dead without ever having been there?"""
    return (F.col("event") == "dead") & F.col("sequence").isNull()
