"""The lives of queues: one that was deleted and made anew counts its messages from 1 again."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake.store import append
from ringfaust.spark.lake.tables import DELETIONS, read

KEY = ("partition", "queue", "life", "sequence")
"""What identifies a message. `life` is the step that deleted the queue before; 0: none did."""


def with_life(spark: SparkSession, root: str, lines: DataFrame, batch: int) -> DataFrame:
    """Transitions with `life`, also kept for later batches in `deletions`.

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
