"""The short way tells what the long way tells, once, and leaves nothing lying about."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable as Table
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.lake import arrow_writer as short_way
from ringfaust.spark.lake import store, transitions
from ringfaust.spark.lake.store import append, compact, local_folder
from ringfaust.spark.lake.stream import lake_session
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS, path, read
from tests.spark.lake_story import Story

WORKER = WorkerConfig(application="short", bootstrap_servers="127.0.0.1:1", partitions=2)
TOPIC = WORKER.topic(Role.EVENTS)
AT = datetime(2026, 11, 22, 23, 59, 59, 999_000, UTC)
ODD = b'{"step":900000,"event":"x","priority":"high"}'


class Lake:
    """Bronze as a test wants it, and what is made of it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = str(root)
        self.spark = lake_session(spark, self.root, WORKER)

    def land(self, batch: int, values: dict[int, list[bytes]], first: int = 0) -> None:
        """Records of events by partition, from an offset on."""
        rows = [
            (TOPIC, partition, first + n, AT, 1, None, value, [], batch, AT.date())
            for partition, told in values.items()
            for n, value in enumerate(told)
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
        """How many the short way made."""
        history = Table.forPath(self.spark, path(self.root, "transitions")).history()
        return sum("delta-rs" in commit.engineInfo for commit in history.collect())

    def stray(self) -> set[Path]:
        """Files that the table does not know."""
        folder = Path(path(self.root, "transitions"))
        known = {Path(file) for file in DeltaTable(str(folder)).file_uris()}
        return set(folder.glob("date=*/*.parquet")) - known


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path / "lake")


def _values(seed: int) -> dict[int, list[bytes]]:
    stories = [Story(0), Story(1)]
    for story in stories:
        story.go_on(60, seed)
    return {story.partition: list(story.values()) for story in stories}


def test_both_ways_tell_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes = [Lake(spark, tmp_path / name) for name in ("short", "long")]
    values = _values(1)
    for lake in lakes:
        lake.land(0, values)
        lake.write(0)
        monkeypatch.setattr(short_way, "translate", lambda *_: None)
    short, long = lakes
    assert short.rows() == long.rows()
    assert short.rows().total() > 100
    assert (short.commits(), long.commits()) == (1, 0)
    dates = {date.name for date in Path(path(short.root, "transitions")).glob("date=*")}
    assert dates == {date.name for date in Path(path(long.root, "transitions")).glob("date=*")}


def test_readers_may_skip_files_by_the_bounds_that_are_told(lake: Lake) -> None:
    lake.land(0, _values(1))
    lake.write(0)
    files = DeltaTable(path(lake.root, "transitions")).get_add_actions(flatten=True)
    told = [dict(zip(files.schema.names, row, strict=True)) for row in _rows_of(files)]
    by_file: dict[int, list[Any]] = {}
    for row in read(lake.spark, lake.root, "transitions").collect():
        by_file.setdefault(row.partition, []).append(row)
    assert len(told) == len(by_file) == 2
    for file in told:
        rows = by_file[file["min.partition"]]
        assert file["num_records"] == len(rows)
        for name in ("partition", "offset", "step", "time_ms", "queue", "sequence", "batch"):
            values = [row[name] for row in rows if row[name] is not None]
            assert file[f"min.{name}"] == min(values), name
            assert file[f"max.{name}"] == max(values), name
            assert file[f"null_count.{name}"] == len(rows) - len(values), name


def _rows_of(files: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in files.columns), strict=True))


def test_a_batch_that_is_done_again_counts_once(lake: Lake) -> None:
    lake.land(0, _values(2))
    lake.write(0)
    before = lake.rows()
    shutil.rmtree(Path(lake.root) / "state/marks/events")  # as if killed before they were written
    lake.write(0)
    assert lake.rows() == before
    assert (lake.commits(), lake.stray()) == (1, set())


def test_one_odd_line_sends_the_batch_the_long_way(lake: Lake) -> None:
    values = _values(3)
    lines = sum(value.count(b"\n") + 1 for told in values.values() for value in told)
    lake.land(0, {0: values[0], 1: [*values[1], ODD]})
    lake.write(0)
    assert lake.rows().total() == lines + 1
    assert (lake.commits(), lake.stray()) == (0, set())


def test_so_do_repeats_and_they_are_left_out(lake: Lake) -> None:
    values = _values(4)[0]
    half = len(values) // 2
    lake.land(0, {0: values[:half]})
    lake.write(0)
    lake.land(1, {0: values[half - 2 :]}, first=half)
    lake.write(1)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values)
    assert lake.rows("repeats").total() == 1
    assert (lake.commits(), lake.stray()) == (1, set())


def test_a_step_that_goes_on_in_the_next_batch_does_not(lake: Lake) -> None:
    lines = [b'{"step":%d,"event":"e","n":%d}' % (n // 3, n) for n in range(20)]
    for batch in range(2):
        lake.land(batch, {0: [b"\n".join(lines[batch * 10 : batch * 10 + 10])]}, first=batch)
        lake.write(batch)
    assert [raw.encode() for raw in lake.raw()] == lines
    assert lake.commits() == 2


def test_bronze_may_be_put_together_before_it_is_read(lake: Lake) -> None:
    values = _values(5)[0]
    half = len(values) // 2
    lake.land(0, {0: values[:half]})
    lake.land(1, {0: values[half:]}, first=half)
    compact(lake.spark, lake.root, ["bronze"])
    lake.write(0)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values[:half])
    lake.write(1)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values)
    assert lake.commits() == 2


def test_spark_goes_on_from_a_log_that_the_short_way_put_together(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PROPERTIES", {"delta.checkpointInterval": "3"})
    lake = Lake(spark, tmp_path / "lake")
    lines = [b'{"step":%d,"event":"e"}' % n for n in range(4)]
    for batch, line in enumerate(lines[:3]):
        lake.land(batch, {0: [line]}, first=batch)
        lake.write(batch)
    log = Path(path(lake.root, "transitions"), "_delta_log")
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for commit in log.glob("*.json"):
        if int(commit.stem) <= int(checkpoint.name.partition(".")[0]):
            commit.unlink()
    context: Any = spark.sparkContext
    context._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert [raw.encode() for raw in lake.raw()] == lines[:3]
    known = read(lake.spark, lake.root, "transitions")
    append(known, lake.root, TRANSITIONS, transitions.STREAM, 2)  # the log knows that batch
    assert [raw.encode() for raw in lake.raw()] == lines[:3]
    lake.land(3, {0: [lines[3]]}, first=3)
    lake.write(3)
    assert [raw.encode() for raw in lake.raw()] == lines


@pytest.mark.parametrize(("name", "commits"), [("a b é", 1), ("a%c5", 0)])
def test_whatever_the_lake_is_called(
    spark: SparkSession, tmp_path: Path, name: str, commits: int
) -> None:
    lake = Lake(spark, tmp_path / name)
    values = _values(6)[0]
    lake.land(0, {0: values})
    lake.write(0)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values)
    assert lake.commits() == commits


def test_a_table_that_others_changed_goes_the_long_way(lake: Lake) -> None:
    lake.spark.sql(
        f"ALTER TABLE delta.`{path(lake.root, 'transitions')}` "
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    values = _values(7)[0]
    lake.land(0, {0: values})
    lake.write(0)
    assert "\n".join(lake.raw()).encode() == b"\n".join(values)
    assert lake.commits() == 0


def test_only_a_local_file_system_is_for_tasks_to_write_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert local_folder(spark, str(tmp_path)) == str(tmp_path)
    assert local_folder(spark, tmp_path.as_uri()) == str(tmp_path)
    assert local_folder(spark, "hdfs://127.0.0.1:1/lake") is None
