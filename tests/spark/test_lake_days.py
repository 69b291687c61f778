"""Days close in order, and also if nothing was ever delivered."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.spark.lake import gold
from ringfaust.spark.lake.gold import closings
from ringfaust.spark.lake.tables import path
from ringfaust.spark.lake.with_duckdb import last_closing
from ringfaust.spark.maintain.retention import used_days
from tests.spark.batched_lake import WORKER, BatchedLake
from tests.spark.lake_history import LakeHistory

DAY_MS = 86_400_000


def write_day(lake: BatchedLake, history: LakeHistory) -> None:
    """A batch with messages that nobody receives, three of which are evicted."""
    lines = len(history.lines)
    for _ in range(6):
        history.send("a")
    lake.write(history.values(after=lines), history.now_ms)
    gold.catch_up(lake.spark, lake.root, lake.batch)


def closed_at(lake: BatchedLake) -> int:
    """The last batch that closed a day."""
    return last_closing(DeltaTable(path(lake.root, "messages")))


def test_days_close_without_deliveries_and_never_backwards(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = BatchedLake(spark, tmp_path / "lake")
    history, lagging = LakeHistory(0), LakeHistory(1)
    write_day(lake, history)
    assert closed_at(lake) == -1
    history.now_ms += DAY_MS
    write_day(lake, history)
    assert closed_at(lake) == 1
    for late in (lagging, history):  # the other partition is a day behind
        write_day(lake, late)
        assert closed_at(lake) == 1
    history.now_ms += DAY_MS
    write_day(lake, history)
    assert closed_at(lake) == lake.batch
    assert DeltaTable(path(lake.root, "deliveries")).to_pyarrow_table().num_rows == 0
    assert used_days(lake.spark, lake.root, WORKER)["transitions"].needed is None


def test_deliveries_are_closed_with_the_messages_of_a_complete_batch() -> None:
    assert closings({"messages": 5, "deliveries": -1}, 5)["deliveries"] == 5
    assert closings({"messages": 5, "deliveries": 3}, 4)["deliveries"] == 3, "not complete"
    assert closings({"messages": -1, "deliveries": -1}, 4)["deliveries"] == -1
