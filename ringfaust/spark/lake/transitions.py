"""Records of the events topic → transitions, one row for each line; bad lines → quarantine."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake.store import LakeProgress, append
from ringfaust.spark.lake.tables import QUARANTINE, TRANSITIONS, read
from ringfaust.spark.lines import read_lines

STREAM = "events"


def write(spark: SparkSession, root: str, topic: str, batch: int) -> None:
    """Read a batch from bronze and write its transitions and quarantine.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        topic: the events topic.
        batch: a batch of the stream `events` that is in bronze.
    """
    progress = LakeProgress(spark, root, STREAM)
    if progress.batch >= batch:
        return
    bronze = (
        read(spark, root, "bronze")
        .where((F.col("topic") == topic) & (F.col("batch") == batch))
        .select("topic", "partition", "offset", "timestamp", "value")
    )
    text = F.make_valid_utf8(F.coalesce(F.col("value").cast("string"), F.lit("")))
    records = bronze.withColumn("value", text)
    lines = read_lines(records)
    is_good = F.col("step").isNotNull() & F.col("event").isNotNull()
    append(_as_transitions(lines.where(is_good), batch), root, TRANSITIONS, STREAM, batch)
    if _count(spark, root, batch) < _count_lines(records):
        bad = lines.where(~is_good).withColumns(
            {
                "topic": F.lit(topic),
                "why": _why_bad(),
                "batch": F.lit(batch).cast("long"),
                "date": F.to_date("timestamp"),
            }
        )
        append(bad.select(QUARANTINE.schema.names), root, QUARANTINE, STREAM, batch)
    progress.complete(batch)


def _as_transitions(lines: DataFrame, batch: int) -> DataFrame:
    """Lines in the columns of the table; `date` is the day of the decision."""
    day = F.to_date(F.timestamp_millis("time_ms"))
    return lines.withColumns(
        {"batch": F.lit(batch).cast("long"), "date": F.coalesce(day, F.to_date("timestamp"))}
    ).select(TRANSITIONS.schema.names)


def _count(spark: SparkSession, root: str, batch: int) -> int:
    return read(spark, root, "transitions").where(F.col("batch") == batch).count()


def _count_lines(records: DataFrame) -> int:
    """Good and bad lines, without parsing them."""
    count = F.length("value") - F.length(F.replace("value", F.lit("\n"), F.lit(""))) + 1
    return int(records.agg(F.coalesce(F.sum(count), F.lit(0))).collect()[0][0])


def _why_bad() -> Column:
    """What a bad line lacks."""
    return (
        F.when(F.get_json_object("raw", "$").isNull(), "no_json")
        .when(F.col("step").isNull(), "no_step")
        .otherwise("no_event")
    )
