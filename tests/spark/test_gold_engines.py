"""Gold in DuckDB and on Spark: the same rows, also if a batch is repeated. And the catalog."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ringfaust.errors import BadSetting
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake import catalog, gold
from ringfaust.spark.lake.duckdb_engine import DuckDbEngine
from ringfaust.spark.lake.engine import GoldEngine
from ringfaust.spark.lake.spark_engine import SparkEngine
from ringfaust.spark.lake.storage import Storage
from ringfaust.spark.lake.store import GOLD, LakeError
from ringfaust.spark.lake.tables import DELIVERIES, TABLES, path, read
from ringfaust.spark.lake.views import VIEWS
from tests.spark.batched_lake import BatchedLake
from tests.spark.lake_history import LakeHistory

DAY_MS = 86_400_000
COMPARED = ("messages", "deliveries", "queue_minutes", "queues", "scheduled", "deletions")


@pytest.fixture(scope="module")
def lakes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, BatchedLake]]:
    """Two lakes with the same transitions, in whose third batch another day begins."""
    folder = tmp_path_factory.mktemp("gold")
    lake = BatchedLake(spark, folder / "duckdb")
    history = LakeHistory(0)
    for batch in range(4):
        history.now_ms += DAY_MS if batch == 2 else 0
        lines = len(history.lines)
        history.continue_randomly(60, batch)
        lake.write(history.values(after=lines), history.now_ms)
    shutil.copytree(folder / "duckdb", folder / "spark")
    yield {"duckdb": lake, "spark": lake.at(folder / "spark")}


def _fill(
    lake: BatchedLake, monkeypatch: pytest.MonkeyPatch, make: Callable[[], GoldEngine]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gold, "open_engine", lambda *_: make())
        gold.catch_up(lake.spark, lake.root, 3)
        HadoopFolder(lake.spark, f"{lake.root}/state/marks/{GOLD}").delete("3")
        gold.catch_up(lake.spark, lake.root, 3)  # the last batch again


@pytest.mark.slow
def test_both_engines_write_the_same_rows(
    lakes: dict[str, BatchedLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb, on_spark = lakes["duckdb"], lakes["spark"]
    _fill(duckdb, monkeypatch, lambda: DuckDbEngine(Storage(duckdb.root)))
    _fill(on_spark, monkeypatch, lambda: SparkEngine(on_spark.spark, on_spark.root))
    found: dict[str, Counter[Any]] = {}
    for table in COMPARED:
        found[table] = on_spark.rows(table)
        assert duckdb.rows(table) == found[table], table
    assert min(map(len, found.values())) > 0
    for table in ("messages_now", "deliveries_now", "evictions"):
        assert duckdb.rows(table) == on_spark.rows(table), table


@pytest.mark.slow
def test_a_lake_is_continued_by_the_other_engine(lakes: dict[str, BatchedLake]) -> None:
    """Last: it closes both lakes again, each by the other engine."""
    duckdb, on_spark = lakes["duckdb"], lakes["spark"]
    for engine in (SparkEngine(duckdb.spark, duckdb.root), DuckDbEngine(Storage(on_spark.root))):
        with contextlib.closing(engine):
            gold.close(engine, 3)
    for table in COMPARED:
        assert duckdb.rows(table) == on_spark.rows(table), table


def test_a_table_of_another_format_is_left_to_spark(
    lakes: dict[str, BatchedLake], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = lakes["duckdb"]
    with contextlib.closing(gold.open_engine(lake.spark, lake.root)) as engine:
        assert isinstance(engine, DuckDbEngine)
    copied = tmp_path / "copied"
    shutil.copytree(lake.root, copied)
    lake.spark.sql(
        f"ALTER TABLE delta.`{path(str(copied), DELIVERIES.name)}` "
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for _ in range(2):
        with contextlib.closing(gold.open_engine(lake.spark, str(copied))) as engine:
            assert isinstance(engine, SparkEngine)
    (warning,) = caplog.messages
    assert "has changed the format of deliveries, for example by turning on deletion" in warning
    assert read(lake.spark, str(copied), "transitions").count() > 0


def _registered(lake: BatchedLake, schema: str, name: str) -> Counter[Any]:
    return Counter(map(str, lake.spark.sql(f"SELECT * FROM {schema}.{name}").collect()))


def test_the_tables_are_registered_in_a_schema(lakes: dict[str, BatchedLake]) -> None:
    lake, other = lakes["duckdb"], lakes["spark"]
    gold.catch_up(lake.spark, lake.root, 3)
    schema = f"rings_{uuid.uuid4().hex[:6]}"
    for _ in range(2):  # as at each start
        catalog.register(lake.spark, lake.root, schema)
    for name in (*TABLES, *VIEWS):
        assert _registered(lake, schema, name) == lake.rows(name), name
    with contextlib.closing(gold.open_engine(lake.spark, lake.root)) as engine:
        gold.close(engine, 3)
    for name in VIEWS:  # which were registered before that closing
        assert _registered(lake, schema, name) == lake.rows(name), name
    with pytest.raises(
        LakeError, match=rf"cannot register {schema}\.bronze, which is the table at"
    ):
        catalog.register(other.spark, other.root, schema)


@pytest.mark.parametrize("name", ["", "a.b.c", "rings; DROP TABLE x", "my-rings", "rings."])
def test_a_name_that_is_no_schema_is_refused(name: str) -> None:
    with pytest.raises(BadSetting, match=r"use SCHEMA or CATALOG.SCHEMA, such as main.rings"):
        catalog.check_schema(name)
