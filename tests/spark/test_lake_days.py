"""Days close in order, and also if nothing was ever delivered."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.spark.lake import gold
from ringfaust.spark.lake.gold import closings
from ringfaust.spark.lake.tables import path
from ringfaust.spark.lake.with_duckdb import last_closing
from ringfaust.spark.maintain.retention import used_days
from tests.spark.batched_lake import WORKER, BatchedLake
from tests.spark.lake_history import LakeHistory, parse

DAY_MS = 86_400_000


def send_six(history: LakeHistory) -> None:
    """Messages that nobody receives, three of which are evicted."""
    for _ in range(6):
        history.send("a")


def write_day(lake: BatchedLake, history: LakeHistory) -> None:
    """A batch with six more messages."""
    lines = len(history.lines)
    send_six(history)
    lake.write(history.values(after=lines), history.now_ms)
    gold.catch_up(lake.spark, lake.root, lake.batch)


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BatchedLake:
    """A lake with one day, that of `six_sent`."""
    lake = BatchedLake(spark, tmp_path_factory.mktemp("begun") / "lake")
    write_day(lake, LakeHistory(0))
    assert closed_at(lake) == -1
    return lake


def six_sent() -> LakeHistory:
    """The history of the lake `begun`."""
    history = LakeHistory(0)
    send_six(history)
    return history


def closed_at(lake: BatchedLake) -> int:
    """The last batch that closed a day."""
    return last_closing(DeltaTable(path(lake.root, "messages")))


def test_days_close_without_deliveries_and_never_backwards(
    begun: BatchedLake, tmp_path: Path
) -> None:
    lake = begun.copy(tmp_path / "lake")
    history, lagging = six_sent(), LakeHistory(1)
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


def noon_after(history: LakeHistory, days: int) -> datetime:
    """Noon, so many days after what was last written."""
    day = datetime.fromtimestamp(history.now_ms / 1000, UTC).date()
    return datetime.combine(day + timedelta(days=days), time(12), UTC)


def test_the_clock_closes_a_day_that_no_line_follows(
    spark: SparkSession, begun: BatchedLake, tmp_path: Path
) -> None:
    empty = BatchedLake(spark, tmp_path / "empty")
    assert not gold.close_by_clock(empty.spark, empty.root, datetime.now(UTC)), "an empty lake"
    lake, history = begun.copy(tmp_path / "lake"), six_sent()
    midnight = datetime.combine(noon_after(history, 1), time(), UTC)
    for early in (noon_after(history, 0), midnight + gold.CLOSING_DELAY - timedelta(seconds=1)):
        assert not gold.close_by_clock(lake.spark, lake.root, early)
        assert closed_at(lake) == -1
    assert gold.close_by_clock(lake.spark, lake.root, midnight + gold.CLOSING_DELAY)
    assert closed_at(lake) == 0
    assert not gold.close_by_clock(lake.spark, lake.root, noon_after(history, 2)), "once"
    write_day(lake, history)  # late lines of that day
    assert not gold.close_by_clock(lake.spark, lake.root, noon_after(history, 2))
    history.now_ms += DAY_MS
    write_day(lake, history)
    assert closed_at(lake) == 0, "the clock has closed the day before"
    # A clock that is wrong closes a day early, and no more.
    assert gold.close_by_clock(lake.spark, lake.root, noon_after(history, 30_000))
    assert closed_at(lake) == lake.batch
    for _ in range(2):
        history.now_ms += DAY_MS
        write_day(lake, history)
    assert closed_at(lake) == lake.batch


def test_a_closing_by_the_clock_that_was_interrupted_is_finished_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, history = BatchedLake(spark, tmp_path / "lake"), LakeHistory(0)
    history.continue_randomly(60, 1)
    lake.write(history.values(), history.now_ms)
    gold.catch_up(lake.spark, lake.root, lake.batch)
    with monkeypatch.context() as patch:
        patch.setitem(gold.ENDED_ON, "deliveries", "no such column")
        with pytest.raises(Exception, match="no such column"):
            gold.close_by_clock(lake.spark, lake.root, noon_after(history, 1))
    assert closed_at(lake) == 0, "messages are closed, and deliveries are not"
    assert used_days(lake.spark, lake.root, WORKER)["transitions"].needed is not None
    handed = sum(line["event"] == "dispatched" for line in parse(history.lines))
    write_day(lake, history)
    deliveries = DeltaTable(path(lake.root, "deliveries")).to_pyarrow_table()
    assert deliveries.num_rows == handed > 0


def test_deliveries_are_closed_with_the_messages_of_a_complete_batch() -> None:
    assert closings({"messages": 5, "deliveries": -1}, 5)["deliveries"] == 5
    assert closings({"messages": 5, "deliveries": 3}, 4)["deliveries"] == 3, "not complete"
    assert closings({"messages": -1, "deliveries": -1}, 4)["deliveries"] == -1
