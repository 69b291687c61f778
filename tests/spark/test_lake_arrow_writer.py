"""The Arrow writer writes the rows of the Spark writer, once, and leaves no stray files."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable as Table
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake import arrow_writer, store, transitions
from ringfaust.spark.lake.store import append, compact
from ringfaust.spark.lake.stream import lake_session
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS, path, read
from ringfaust.spark.vendor import jvm
from tests.spark.lake_history import LakeHistory

WORKER = WorkerConfig(application="arrow", bootstrap_servers="127.0.0.1:1", partitions=2)
TOPIC = WORKER.topic(Role.EVENTS)
AT = datetime(2026, 11, 22, 23, 59, 59, 999_000, UTC)
ODD = b'{"step":900000,"event":"x","priority":"high"}'


class Lake:
    """Bronze with given records, and the tables written from it.

    `empty` is copied if it is given: creating the tables takes longer than most tests.
    """

    def __init__(self, spark: SparkSession, root: Path, empty: Path | None = None) -> None:
        self.root = str(root)
        if empty is not None:
            shutil.copytree(empty, root)
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
        transitions.write(self.spark, self.root, TOPIC, batch)

    def rows(self, table: str = "transitions") -> Counter[Any]:
        return Counter(map(str, read(self.spark, self.root, table).collect()))

    def raw(self) -> list[str]:
        found = read(self.spark, self.root, "transitions").orderBy("partition", "offset", "line")
        return [row.raw for row in found.collect()]

    def commits(self) -> int:
        """How many commits the Arrow writer made."""
        history = Table.forPath(self.spark, path(self.root, "transitions")).history()
        return sum("delta-rs" in commit.engineInfo for commit in history.collect())

    def stray(self) -> set[Path]:
        """Files that are not part of the table."""
        folder = Path(path(self.root, "transitions"))
        known = {Path(file) for file in DeltaTable(str(folder)).file_uris()}
        return set(folder.glob("date=*/*.parquet")) - known


@pytest.fixture(scope="module")
def empty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("empty") / "lake"
    lake_session(spark, str(root), WORKER)
    return root


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, empty: Path) -> Lake:
    return Lake(spark, tmp_path / "lake", empty)


def _values(seed: int, lines_each: int = 7) -> dict[int, list[bytes]]:
    histories = [LakeHistory(0), LakeHistory(1)]
    for history in histories:
        history.continue_randomly(60, seed)
    return {history.partition: list(history.values(lines_each)) for history in histories}


def test_both_writers_write_the_same_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: Path
) -> None:
    lakes = [Lake(spark, tmp_path / name, empty) for name in ("arrow", "spark")]
    values = _values(1)
    for lake in lakes:
        lake.put(0, values)
        lake.write(0)
        monkeypatch.setattr(arrow_writer, "write", lambda *_: False)
    by_arrow, by_spark = lakes
    assert by_arrow.rows() == by_spark.rows()
    assert by_arrow.rows().total() > 100
    assert (by_arrow.commits(), by_spark.commits()) == (1, 0)
    dates = {date.name for date in Path(path(by_arrow.root, "transitions")).glob("date=*")}
    assert dates == {date.name for date in Path(path(by_spark.root, "transitions")).glob("date=*")}


def test_readers_may_skip_files_by_their_bounds(lake: Lake) -> None:
    lake.put(0, _values(1))
    lake.write(0)
    files = DeltaTable(path(lake.root, "transitions")).get_add_actions(flatten=True)
    found = [dict(zip(files.schema.names, row, strict=True)) for row in _rows_of(files)]
    by_file: dict[int, list[Any]] = {}
    for row in read(lake.spark, lake.root, "transitions").collect():
        by_file.setdefault(row.partition, []).append(row)
    assert len(found) == len(by_file) == 2
    for file in found:
        rows = by_file[file["min.partition"]]
        assert file["num_records"] == len(rows)
        for name in ("partition", "offset", "step", "time_ms", "queue", "sequence", "batch"):
            values = [row[name] for row in rows if row[name] is not None]
            assert file[f"min.{name}"] == min(values), name
            assert file[f"max.{name}"] == max(values), name
            assert file[f"null_count.{name}"] == len(rows) - len(values), name


def _rows_of(files: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in files.columns), strict=True))


def test_a_repeated_batch_counts_once(lake: Lake) -> None:
    values = _values(2, lines_each=1)
    assert max(map(len, values.values())) > 50, "more than the tasks read at a time"
    lake.put(0, values)
    lake.write(0)
    assert lake.stray() == set()
    before = lake.rows()
    shutil.rmtree(Path(lake.root) / "state/marks/events")  # as if killed before it was written
    lake.write(0)
    assert lake.rows() == before
    assert (lake.commits(), lake.stray()) == (1, set())


def test_a_batch_with_an_odd_line_goes_to_the_spark_writer(lake: Lake) -> None:
    values = _values(3)
    lines = sum(value.count(b"\n") + 1 for records in values.values() for value in records)
    lake.put(0, {0: values[0], 1: [*values[1], ODD]})
    lake.write(0)
    assert lake.rows().total() == lines + 1
    assert (lake.commits(), lake.stray()) == (0, set())


def test_a_step_that_continues_in_the_next_batch_is_no_repeat(lake: Lake) -> None:
    lines = [b'{"step":%d,"event":"e","n":%d}' % (n // 3, n) for n in range(20)]
    for batch in range(2):
        lake.put(batch, {0: [b"\n".join(lines[batch * 10 : batch * 10 + 10])]}, first=batch)
        lake.write(batch)
    assert [raw.encode() for raw in lake.raw()] == lines
    assert lake.commits() == 2


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
    assert lake.commits() == 2


def test_spark_reads_a_log_that_the_arrow_writer_checkpointed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PROPERTIES", {"delta.checkpointInterval": "3"})
    lake = Lake(spark, tmp_path / "lake")
    lines = [b'{"step":%d,"event":"e"}' % n for n in range(4)]
    for batch, line in enumerate(lines[:3]):
        lake.put(batch, {0: [line]}, first=batch)
        lake.write(batch)
    log = Path(path(lake.root, "transitions"), "_delta_log")
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for commit in log.glob("*.json"):
        if int(commit.stem) <= int(checkpoint.name.partition(".")[0]):
            commit.unlink()
    jvm(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert [raw.encode() for raw in lake.raw()] == lines[:3]
    known = read(lake.spark, lake.root, "transitions")
    append(known, lake.root, TRANSITIONS, transitions.STREAM, 2)  # the log already has that batch
    assert [raw.encode() for raw in lake.raw()] == lines[:3]
    lake.put(3, {0: [lines[3]]}, first=3)
    lake.write(3)
    assert [raw.encode() for raw in lake.raw()] == lines


@pytest.mark.parametrize(("name", "commits"), [("a b é", 1), ("a%c5", 0)])
def test_the_path_of_a_lake_may_have_special_characters(
    spark: SparkSession, tmp_path: Path, name: str, commits: int, empty: Path
) -> None:
    lake = Lake(spark, tmp_path / name, empty)
    values = _values(6)[0]
    lake.put(0, {0: values})
    lake.write(0)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values)
    assert lake.commits() == commits


def test_a_table_whose_format_was_changed_goes_to_the_spark_writer(lake: Lake) -> None:
    lake.spark.sql(
        f"ALTER TABLE delta.`{path(lake.root, 'transitions')}` "
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    values = _values(7)[0]
    lake.put(0, {0: values})
    lake.write(0)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values)
    assert lake.commits() == 0


def test_a_lake_of_an_older_version_gets_the_new_columns_and_continues(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release 0.1 had no columns for `xid` and `committed`: they are null in its rows."""
    new = ("xid", "committed")
    fields = [field for field in TRANSITIONS.schema if field.name not in new]
    old = replace(TRANSITIONS, schema=StructType(fields))
    shutil.rmtree(path(lake.root, "transitions"))
    store._create(lake.spark, lake.root, old, "arrow")
    lines = [
        b'{"step":%d,"event":"decided","queue":"","xid":"x-%d","committed":true,"time_ms":1,"by":"c"}'
        % (n, n)
        for n in range(3)
    ]
    with monkeypatch.context() as older:
        older.setattr(arrow_writer, "write", lambda *_: False)
        older.setattr(transitions, "TRANSITIONS", old)
        lake.put(0, {0: [lines[0]]})
        lake.write(0)
    assert {*read(lake.spark, lake.root, "transitions").columns} == {*old.schema.names}
    for batch in (1, 2):  # the first adds the columns, so that Arrow can write the second
        lake.put(batch, {0: [lines[batch]]}, first=batch)
        lake.write(batch)
    rows = read(lake.spark, lake.root, "transitions").orderBy("batch").select("batch", *new)
    assert [tuple(row) for row in rows.collect()] == [
        (0, None, None), (1, "x-1", True), (2, "x-2", True)
    ]  # fmt: skip
    assert lake.commits() == 1


def test_only_a_local_file_system_has_a_local_path(spark: SparkSession, tmp_path: Path) -> None:
    assert HadoopFolder(spark, str(tmp_path)).local_path() == str(tmp_path)
    assert HadoopFolder(spark, tmp_path.as_uri()).local_path() == str(tmp_path)
    assert HadoopFolder(spark, "hdfs://127.0.0.1:1/lake").local_path() is None
