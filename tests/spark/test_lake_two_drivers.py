"""Someone else commits between a read of the lake and the commit that follows: nothing doubles.

A paused driver that goes on, a second run, or an OPTIMIZE. Each comes at the worst moment: when the
files of a batch are written, and before they are committed.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.spark.lake import arrow_writer, duckdb_engine, gold, transitions
from ringfaust.spark.lake.tables import TABLES, path
from tests.spark.batched_lake import TOPIC, BatchedLake
from tests.spark.lake_history import LakeHistory

DAY_MS = 86_400_000
GOLD = ("messages", "deliveries", "queue_minutes", "queues", "scheduled", "deletions")
LAST = 3


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BatchedLake:
    """A lake with transitions and no gold, in whose last two batches other days begin."""
    lake = BatchedLake(spark, tmp_path_factory.mktemp("silver") / "lake")
    history = LakeHistory(0)
    for batch in range(LAST + 1):
        history.now_ms += DAY_MS if batch >= 2 else 0
        lines = len(history.lines)
        history.continue_randomly(40, batch)
        lake.write(history.values(after=lines), history.now_ms)
    return lake


@pytest.fixture
def copied(lake: BatchedLake, tmp_path: Path) -> BatchedLake:
    shutil.copytree(lake.root, tmp_path / "lake")
    return lake.at(tmp_path / "lake")


@pytest.fixture(scope="module")
def undisturbed(
    lake: BatchedLake, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Counter[Any]]:
    """The rows of gold if nobody interferes."""
    root = tmp_path_factory.mktemp("undisturbed") / "lake"
    shutil.copytree(lake.root, root)
    alone = lake.at(root)
    gold.catch_up(alone.spark, alone.root, LAST)
    found = {table: _rows(alone, table) for table in GOLD}
    assert min(map(len, found.values())) > 0
    return found


def _rows(lake: BatchedLake, table: str) -> Counter[Any]:
    found = DeltaTable(path(lake.root, table)).to_pyarrow_table().to_pylist()
    return Counter(map(str, found))


def _before_each_commit(monkeypatch: pytest.MonkeyPatch, interfere: Callable[[str], None]) -> None:
    """Call `interfere` with the table's name when gold has written files, before it commits."""
    write_files = duckdb_engine._write_files

    def write(batches: Any, folder: Any, table: Any) -> Any:
        files = write_files(batches, folder, table)
        interfere(table.name)
        return files

    monkeypatch.setattr(duckdb_engine, "_write_files", write)


def test_silver_counts_a_batch_once_that_another_driver_has_written(
    copied: BatchedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = LakeHistory(1)
    history.continue_randomly(60, 9)
    before = _rows(copied, "transitions")
    copied.write_bronze(history.values(), history.now_ms)
    commit = arrow_writer.commit

    def after_the_other(*arguments: Any, **named: Any) -> None:
        with monkeypatch.context() as other:
            other.setattr(arrow_writer, "commit", commit)
            transitions.write(copied.spark, copied.root, TOPIC, copied.batch)
        commit(*arguments, **named)

    monkeypatch.setattr(arrow_writer, "commit", after_the_other)
    transitions.write(copied.spark, copied.root, TOPIC, copied.batch)
    written = _rows(copied, "transitions") - before
    assert written.total() == len(history.lines)
    assert set(written.values()) == {1}


@pytest.mark.parametrize("number", range(LAST + 1))
def test_gold_counts_a_batch_once_that_another_driver_has_written(
    copied: BatchedLake,
    undisturbed: dict[str, Counter[Any]],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """The driver is paused in a batch, before its first commit; the other one writes all."""
    if number:
        gold.catch_up(copied.spark, copied.root, number - 1)

    with monkeypatch.context() as patch:

        def write_all(_: str) -> None:
            patch.undo()
            gold.catch_up(copied.spark, copied.root, LAST)

        _before_each_commit(patch, write_all)
        gold.catch_up(copied.spark, copied.root, LAST)
    assert {table: _rows(copied, table) for table in GOLD} == undisturbed


def test_gold_survives_an_optimize_between_its_read_and_its_commit(
    copied: BatchedLake, undisturbed: dict[str, Counter[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    optimized: Counter[str] = Counter()

    def optimize(table: str) -> None:
        if optimized[table] < 2 * LAST:
            done = DeltaTable(path(copied.root, table)).optimize.z_order(
                list(TABLES[table].cluster_by or ("queue",))
            )
            optimized[table] += bool(done["numFilesRemoved"])

    _before_each_commit(monkeypatch, optimize)
    gold.catch_up(copied.spark, copied.root, LAST)
    assert optimized["queue_minutes"] and optimized["queues"] and optimized["messages"]
    assert {table: _rows(copied, table) for table in GOLD} == undisturbed
