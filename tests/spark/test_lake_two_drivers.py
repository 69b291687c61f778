"""Someone else commits between a read of the lake and the commit that follows: nothing doubles.

A paused driver resumes, a second run starts, or an OPTIMIZE runs. Each happens at the worst moment:
while a write's tasks run, so Delta's transaction is open and nothing is committed.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.lake import gold, queries, transitions
from ringfaust.spark.lake.tables import LakeTable, path
from tests.spark.batched_lake import BatchedLake
from tests.spark.lake_history import LakeHistory

DAY_MS = 86_400_000
GOLD = ("messages", "deliveries", "queue_minutes", "queues", "scheduled", "deletions")
LAST = 2
DEADLINE_S = 200


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BatchedLake:
    """A lake with transitions and no gold, in whose last batch another day begins."""
    lake = BatchedLake(spark, tmp_path_factory.mktemp("silver") / "lake")
    history = LakeHistory(0)
    for batch in range(LAST + 1):
        history.now_ms += DAY_MS if batch == LAST else 0
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
    return Counter(str(sorted(row.items())) for row in found)


def _await(file: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.01)


@contextmanager
def _during_a_write(
    module: Any, table: str, folder: Path, interfere: Callable[[], None]
) -> Iterator[None]:
    """Call `interfere` while tasks write to a table through `module.append` for the first time."""
    append, errors = module.append, list[BaseException]()
    begun, may_end = folder / "begun", folder / "may-end"

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        while not may_end.exists():  # by itself, as tasks cannot import the tests
            time.sleep(0.01)
        yield from batches

    def other() -> None:
        try:
            _await(begun)
            interfere()
        except BaseException as error:
            errors.append(error)
        finally:
            may_end.touch()

    thread = Thread(target=other)

    def append_slowly(rows: DataFrame, root: str, to: LakeTable, *more: Any, **named: Any) -> None:
        if to.name == table and not thread.ident:
            # For the interference, and when this one is committed again, it is as before.
            module.append = append
            rows = rows.coalesce(1).mapInArrow(wait, rows.schema)
            thread.start()
        append(rows, root, to, *more, **named)

    module.append = append_slowly
    try:
        yield
    finally:
        module.append = append
        begun.touch()
        may_end.touch()
        if thread.ident:
            thread.join()
    assert thread.ident, "nothing was written to the table"
    assert not errors, errors


def test_silver_counts_a_batch_once_that_another_driver_has_written(
    copied: BatchedLake, tmp_path: Path
) -> None:
    history = LakeHistory(1)
    history.continue_randomly(60, 9)
    before = _rows(copied, "transitions")
    copied.write_bronze(history.values(), history.now_ms)

    def write() -> None:
        copied.write_transitions()

    with _during_a_write(transitions, "transitions", tmp_path, write):
        write()
    written = _rows(copied, "transitions") - before
    assert written.total() == len(history.lines)
    assert set(written.values()) == {1}


@pytest.mark.parametrize(
    ("table", "batch"), [("queue_minutes", 0), ("queues", 1), ("scheduled", 1), ("messages", LAST)]
)
def test_gold_counts_a_batch_once_that_another_driver_has_written(
    copied: BatchedLake,
    undisturbed: dict[str, Counter[Any]],
    tmp_path: Path,
    table: str,
    batch: int,
) -> None:
    """The driver is paused in a batch, while it writes a table; the other one writes all."""
    if batch:
        gold.catch_up(copied.spark, copied.root, batch - 1)

    def write() -> None:
        gold.catch_up(copied.spark, copied.root, LAST)

    with _during_a_write(queries, table, tmp_path, write):
        write()
    assert {table: _rows(copied, table) for table in GOLD} == undisturbed


@pytest.mark.parametrize("table", ["queues", "messages"])
def test_gold_survives_an_optimize_between_its_read_and_its_commit(
    copied: BatchedLake, undisturbed: dict[str, Counter[Any]], tmp_path: Path, table: str
) -> None:
    gold.catch_up(copied.spark, copied.root, LAST - 1)
    gold.close(queries.GoldQueries(copied.spark, copied.root), LAST - 1)

    def optimize() -> None:
        files = DeltaTable(path(copied.root, table))
        assert files.optimize.z_order(["queue"])["numFilesRemoved"]

    with _during_a_write(queries, table, tmp_path, optimize):
        gold.catch_up(copied.spark, copied.root, LAST)
    found = _rows(copied, table)
    assert set(found.values()) == {1}
    assert found.total() == undisturbed[table].total()
