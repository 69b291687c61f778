"""A lake that release 0.2.0 began, with DuckDB and delta-rs: it continues as if it were new.

`tests/fixtures/lake-0.2.0.tar.gz` was written by the tag v0.2.0 from the first three batches of
`_write`. It lacks gold of the last one, which is in the same minute as the one before.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.spark.lake import gold
from ringfaust.spark.lake.tables import TABLES, read
from ringfaust.spark.lake.views import ENDED_ON, VIEWS
from ringfaust.spark.lake.with_duckdb import open_duckdb
from tests.spark.batched_lake import BatchedLake
from tests.spark.lake_history import LakeHistory

pytestmark = pytest.mark.slow

FIXTURE = Path(__file__).parents[1] / "fixtures" / "lake-0.2.0.tar.gz"
DAY_MS = 86_400_000
FIRST, LAST = 3, 4
"""The first batch that 0.2.0 did not write, and the last one, in which a day is closed."""


def _write(lake: BatchedLake, stored: Mapping[int, list[bytes]]) -> None:
    """Write the batches of a history that the lake lacks: those that are stored, then new ones.

    0.2.0 wrote another `by` in some lines. All else is equal, so the history continues them.
    """
    history = LakeHistory(0)
    begun = lake.batch
    for batch in range(LAST + 1):
        history.now_ms += DAY_MS if batch in (1, LAST) else 0
        lines = len(history.lines)
        history.continue_randomly(40, batch)
        if batch > begun:
            values = stored.get(batch) or history.values(after=lines)
            lake.write(values, history.now_ms)
            gold.catch_up(lake.spark, lake.root, batch)


def test_a_lake_of_0_2_0_continues_as_a_new_one(spark: SparkSession, tmp_path: Path) -> None:
    with tarfile.open(FIXTURE) as stored:
        stored.extractall(tmp_path / "old", filter="data")
    (tmp_path / "old/lake/state/checkpoints/events").mkdir(parents=True)  # it had no broker
    old = BatchedLake(spark, tmp_path / "old" / "lake")
    old.batch = FIRST - 1
    before = len(old.rows("queue_minutes"))
    new = BatchedLake(spark, tmp_path / "new")
    stored: dict[int, list[bytes]] = {}
    for row in read(spark, old.root, "bronze").orderBy("offset").collect():
        stored.setdefault(row["batch"], []).append(bytes(row["value"]))
    assert list(stored) == list(range(FIRST))
    _write(old, {})
    _write(new, stored)
    for name in (*(TABLES.keys() - {"queue_minutes", "queue_counts"}), *VIEWS):
        assert old.rows(name) == new.rows(name), name
    last = read(new.spark, new.root, "queue_counts").where(f"batch = {LAST}").collect()
    assert old.rows("queue_counts") == Counter(map(str, last))
    assert last
    assert 0 < before < len(old.rows("queue_minutes_now")) < len(old.rows("queue_minutes"))
    assert min(len(old.rows(table)) for table in ENDED_ON) > 0
    minutes = open_duckdb(old.root).sql("SELECT count(*) FROM queue_minutes_now").fetchall()
    assert minutes == [(len(new.rows("queue_minutes_now")),)]
