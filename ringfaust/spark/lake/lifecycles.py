"""Lifecycles of queues. A queue that is deleted and created again numbers its messages from 1."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake.store import append
from ringfaust.spark.lake.tables import DELETIONS, read

MESSAGE_KEY = ("partition", "queue", "life", "sequence")
"""The columns that identify a message. `life` is the step in which the queue was last deleted
before, or 0."""


def with_lifecycle(spark: SparkSession, root: str, lines: DataFrame, batch: int) -> DataFrame:
    """Add the column `life` to transitions, and record deletions for later batches.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        lines: the batch's transitions.
        batch: its number.
    """
    ended = lines.where(F.col("event") == "deleted").select(
        "partition", "queue", "step", "time_ms", "counts"
    )
    if not ended.isEmpty():
        append(ended, root, DELETIONS, "gold", batch)
    deletions = read(spark, root, "deletions")
    if deletions.isEmpty():
        return lines.withColumn("life", F.lit(0).cast("long"))
    steps = deletions.groupBy("partition", "queue").agg(F.collect_set("step").alias("deleted"))
    before = F.filter("deleted", lambda step: step < F.col("step"))
    life = F.coalesce(F.array_max(before), F.lit(0))
    return (
        lines.join(F.broadcast(steps), ["partition", "queue"], "left")
        .withColumn("life", life)
        .drop("deleted")
    )
