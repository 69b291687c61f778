"""Bronze → transitions: each line once, whatever the batch, the path and the table's format."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ringfaust.spark.lake import silver, store
from ringfaust.spark.lake.store import append, compact
from ringfaust.spark.lake.stream import lake_session
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS, path, read
from tests.spark.batched_lake import TOPIC, WORKER, copy_empty
from tests.spark.lake_history import LakeHistory

AT = datetime(2026, 11, 22, 23, 59, 59, 999_000, UTC)
ODD = b'{"step":900000,"event":"x","priority":"high"}'


class Lake:
    """Bronze with given records, and the tables written from it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = str(root)
        copy_empty(spark, root)
        self.spark = lake_session(spark, self.root, WORKER)

    def put(self, batch: int, values: dict[int, list[bytes]], first: int = 0) -> None:
        """Put records of the events topic into bronze, by partition, from offset `first` on."""
        rows = [
            (TOPIC, partition, first + n, AT, 1, None, value, [], batch, AT.date())
            for partition, records in values.items()
            for n, value in enumerate(records)
        ]
        append(self.spark.createDataFrame(rows, BRONZE.schema), self.root, BRONZE, "events", batch)

    def write(self, batch: int) -> None:
        with silver.written_transitions(self.spark, self.root, TOPIC, batch):
            pass

    def rows(self, table: str = "transitions") -> Counter[Any]:
        return Counter(map(str, read(self.spark, self.root, table).collect()))

    def raw(self) -> list[str]:
        found = read(self.spark, self.root, "transitions").orderBy("partition", "offset", "line")
        return [row.raw for row in found.collect()]

    def stray(self) -> set[Path]:
        """Files that are not part of the table."""
        folder = Path(path(self.root, "transitions"))
        known = {Path(file) for file in DeltaTable(str(folder)).file_uris()}
        return set(folder.glob("date=*/*.parquet")) - known


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path / "lake")


def _values(seed: int, lines_each: int = 7) -> dict[int, list[bytes]]:
    histories = [LakeHistory(0), LakeHistory(1)]
    for history in histories:
        history.continue_randomly(60, seed)
    return {history.partition: list(history.values(lines_each)) for history in histories}


def test_a_repeated_batch_counts_once(lake: Lake) -> None:
    values = _values(2, lines_each=1)
    lake.put(0, values)
    lake.write(0)
    assert lake.stray() == set()
    before = lake.rows()
    shutil.rmtree(Path(lake.root) / "state/marks/events")  # as if killed before it was written
    lake.write(0)
    assert lake.rows() == before
    assert lake.stray() == set()


def test_a_line_that_no_worker_writes_is_a_row_like_any_other(lake: Lake) -> None:
    values = _values(3)
    lines = sum(value.count(b"\n") + 1 for records in values.values() for value in records)
    lake.put(0, {0: values[0], 1: [*values[1], ODD]})
    lake.write(0)
    assert lake.rows().total() == lines + 1


def test_bronze_may_be_compacted_before_it_is_read(lake: Lake) -> None:
    values = _values(5)[0]
    half = len(values) // 2
    lake.put(0, {0: values[:half]})
    lake.put(1, {0: values[half:]}, first=half)
    compact(lake.spark, lake.root, BRONZE)
    lake.write(0)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values[:half])
    lake.write(1)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values)


def test_the_path_of_a_lake_may_have_special_characters(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path / "a b é %c5")
    values = _values(6)[0]
    lake.put(0, {0: values})
    lake.write(0)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values)


def test_a_lake_of_an_older_version_gets_the_new_columns_and_continues(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release 0.1 had no columns for `xid` and `committed`: they are null in its rows."""
    new = ("xid", "committed")
    fields = [field for field in TRANSITIONS.schema if field.name not in new]
    old = replace(TRANSITIONS, schema=StructType(fields))
    shutil.rmtree(path(lake.root, "transitions"))
    store._create(lake.spark, lake.root, old, WORKER.application)
    lines = [
        b'{"step":%d,"event":"decided","queue":"","xid":"x-%d","committed":true,"time_ms":1,"by":"c"}'
        % (n, n)
        for n in range(3)
    ]
    with monkeypatch.context() as older:
        older.setattr(silver, "TRANSITIONS", old)
        lake.put(0, {0: [lines[0]]})
        lake.write(0)
    assert {*read(lake.spark, lake.root, "transitions").columns} == {*old.schema.names}
    for batch in (1, 2):
        lake.put(batch, {0: [lines[batch]]}, first=batch)
        lake.write(batch)
    rows = read(lake.spark, lake.root, "transitions").orderBy("batch").select("batch", *new)
    assert [tuple(row) for row in rows.collect()] == [
        (0, None, None), (1, "x-1", True), (2, "x-2", True)
    ]  # fmt: skip
