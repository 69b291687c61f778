"""Someone else commits between a read of the lake and the commit that follows: nothing doubles.

A paused driver resumes, a second run starts, or an OPTIMIZE runs. Each happens at the worst moment:
while a write's tasks run, so Delta's transaction is open and nothing is committed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ringfaust.spark.lake import gold, silver, store
from ringfaust.spark.lake.tables import RECORDS, LakeTable, path
from tests.spark.batched_lake import LAST, BatchedLake
from tests.spark.lake_history import LakeHistory

GOLD = ("messages", "deliveries", "queue_minutes", "queues", "scheduled", "deletions")
DEADLINE_S = 200


@pytest.fixture(scope="module")
def undisturbed(stages: list[BatchedLake]) -> dict[str, Counter[Any]]:
    """The rows of gold if nobody interferes."""
    found = {table: _rows(stages[-1], table) for table in GOLD}
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
    begun, may_end = folder / f"begun-{table}", folder / f"may-end-{table}"

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
    stages: list[BatchedLake], tmp_path: Path
) -> None:
    copied = stages[0].copy(tmp_path / "lake")
    history = LakeHistory(1)
    history.continue_randomly(60, 9)
    before = _rows(copied, "transitions")
    copied.write_bronze(history.values(), history.now_ms)

    def write() -> None:
        copied.write_transitions()

    with _during_a_write(silver, "transitions", tmp_path, write):
        write()
    written = _rows(copied, "transitions") - before
    assert written.total() == len(history.lines)
    assert set(written.values()) == {1}


@pytest.mark.parametrize(
    ("table", "batch"), [("queue_minutes", 1), ("queues", 1), ("messages", LAST)]
)
def test_gold_counts_a_batch_once_that_another_driver_has_written(
    stages: list[BatchedLake],
    undisturbed: dict[str, Counter[Any]],
    tmp_path: Path,
    table: str,
    batch: int,
) -> None:
    """The driver is paused in a batch, while it writes a table; the other one writes all.

    What is written is appended, replaces all, or replaces what is open.
    """
    copied = stages[batch].copy(tmp_path / "lake")

    def write() -> None:
        gold.catch_up(copied.spark, copied.root, LAST)

    with _during_a_write(store, table, tmp_path, write):
        write()
    assert {table: _rows(copied, table) for table in GOLD} == undisturbed


def test_gold_survives_an_optimize_between_its_read_and_its_commit(
    stages: list[BatchedLake], undisturbed: dict[str, Counter[Any]], tmp_path: Path
) -> None:
    """One of each table in which the batch replaces rows: all, or those that are open."""
    copied, tables = stages[LAST].copy(tmp_path / "lake"), ("queues", "messages")
    gold.close(copied.spark, copied.root, LAST - 1)

    def optimize(table: str) -> None:
        files = DeltaTable(path(copied.root, table))
        assert files.optimize.z_order(["queue"])["numFilesRemoved"]

    with ExitStack() as writes:
        for table in tables:
            interfere = partial(optimize, table)
            writes.enter_context(_during_a_write(store, table, tmp_path, interfere))
        gold.catch_up(copied.spark, copied.root, LAST)
    for table in tables:
        found = _rows(copied, table)
        assert set(found.values()) == {1}
        assert found.total() == undisturbed[table].total()


def test_a_stream_compacts_again_after_someone_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance may rewrite the same day around midnight: the stream would end with an error."""
    text = "[DELTA] io.delta.exceptions.ConcurrentDeleteReadException: files were deleted"
    compaction = Mock(side_effect=[PySparkException(text), None])
    table = Mock()
    table.forPath().optimize().where().executeCompaction = compaction
    monkeypatch.setattr(store, "DeltaTable", table)
    store.compact(Mock(), "/lake", RECORDS, "date >= DATE '2026-01-31'")
    assert compaction.call_count == 2
