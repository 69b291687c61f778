"""A small batch costs as much as the Spark jobs that it takes."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from ringfaust.spark.lake.stream import streams
from ringfaust.spark.lake.tables import read
from tests.spark.batched_lake import WORKER, BatchedLake
from tests.spark.lake_history import LakeHistory

MOST = 14


def test_silver_and_gold_of_a_batch_take_few_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """Each table's log is read once for its commit, and no table to see what was just written."""
    lake, history = BatchedLake(spark, tmp_path / "lake"), LakeHistory(0)
    context, events = spark.sparkContext, streams(str(tmp_path / "lake"), WORKER)[0]
    for batch in range(2):
        history.lines.clear()
        history.send("b")
        lake.write_bronze(history.values(), history.now_ms)
        bronze = read(lake.spark, lake.root, "bronze").where(f"batch = {batch}")
        context.setJobGroup(f"batch {batch}", "silver and gold")
        events.refine(lake.spark, batch, bronze)
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    context._jsc.sc().listenerBus().waitUntilEmpty()
    assert 0 < len(context.statusTracker().getJobIdsForGroup("batch 1")) <= MOST
    assert lake.rows("queues").total() == 1
    assert lake.rows("queue_minutes").total() == 2
