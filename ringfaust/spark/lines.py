"""The lines of the events topic as rows, a row for each transition. All of it runs in the JVM."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
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
    text = F.split(F.col("value").cast("string"), "\n")
    lines = records.select(
        "partition", "offset", "timestamp", F.posexplode(text).alias("line", "raw")
    )
    # By `inline`, for Spark would move a reader's filter in front of a projection, and parse each
    # line once more for each field that the filter asks for.
    parsed = F.inline(F.array(F.from_json("raw", LINE)))
    lines = lines.select("partition", "offset", "timestamp", "line", "raw", parsed)
    return lines.withColumn("sequence", F.nullif("sequence", F.lit(0)))


def is_refusal() -> Column:
    """Does the line tell that a send was refused, and is dead without ever having been there?"""
    return (F.col("event") == "dead") & F.col("sequence").isNull()
