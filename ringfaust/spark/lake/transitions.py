"""Records of the events topic → transitions, one row for each line; bad lines → quarantine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake.store import LakeProgress, append, kept
from ringfaust.spark.lake.tables import QUARANTINE, TRANSITIONS, read
from ringfaust.spark.lines import read_lines

STREAM = "events"


@contextmanager
def written(
    spark: SparkSession, root: str, topic: str, batch: int, bronze: DataFrame | None = None
) -> Iterator[DataFrame | None]:
    """Write a batch's transitions and quarantine, unless they are there.

    `bronze` has the batch's rows in bronze, if they are at hand. Within the `with` statement the
    transitions are at hand; None if they were there before.
    """
    progress = LakeProgress(spark, root, STREAM)
    if progress.batch >= batch:
        yield None
        return
    if bronze is None:
        of_batch = (F.col("topic") == topic) & (F.col("batch") == batch)
        bronze = read(spark, root, "bronze").where(of_batch)
    with kept(_lines(bronze)) as lines:
        is_good = F.col("step").isNotNull() & F.col("event").isNotNull()
        good, bad = lines.where(is_good).select(TRANSITIONS.schema.names), lines.where(~is_good)
        append(good, root, TRANSITIONS, STREAM, batch)
        if bad.count():
            bad = bad.withColumns(
                {"topic": F.lit(topic), "why": _why_bad(), "date": F.to_date("timestamp")}
            )
            append(bad.select(QUARANTINE.schema.names), root, QUARANTINE, STREAM, batch)
        progress.complete(batch)
        yield good


def _lines(bronze: DataFrame) -> DataFrame:
    """Lines in the columns of the table; `date` is the day of the decision.

    The batch's number is a column of bronze: as a literal, it would be compiled for each batch.
    """
    text = F.make_valid_utf8(F.coalesce(F.col("value").cast("string"), F.lit("")))
    lines = read_lines(bronze.withColumn("value", text), "batch")
    day = F.to_date(F.timestamp_millis("time_ms"))
    return lines.withColumn("date", F.coalesce(day, F.to_date("timestamp")))


def _why_bad() -> Column:
    """What a bad line lacks."""
    return (
        F.when(F.get_json_object("raw", "$").isNull(), "no_json")
        .when(F.col("step").isNull(), "no_step")
        .otherwise("no_event")
    )
