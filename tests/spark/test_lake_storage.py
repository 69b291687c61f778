"""Transitions are written to S3 as they are to a local disk, and each batch counts once."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction, write_deltalake

from ringfaust.spark.lake import storage as storages
from ringfaust.spark.lake.commits import commit, is_supported
from ringfaust.spark.lake.day_files import write_day_files
from ringfaust.spark.lake.parquet_files import NewFile, discard
from ringfaust.spark.lake.storage import Storage
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS, LakeTable, path
from ringfaust.spark.vendor import to_arrow_schema
from tests.spark.lake_history import LakeHistory
from tests.spark.s3_server import BUCKET, LOST, options, s3_server

STREAM = "ringfaust.lake/events"
AT = datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as url:
        yield url


def _on_s3(url: str, name: str = "") -> Storage:
    """A lake without tables."""
    return Storage(f"s3a://{BUCKET}/{name}{uuid.uuid4().hex}", options(url))


class Lake:
    """Bronze with batches of a history, and an empty table of transitions."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.history = LakeHistory(0)
        for table in (BRONZE, TRANSITIONS):
            DeltaTable.create(
                path(storage.root, table.name),
                to_arrow_schema(table.schema),
                partition_by=list(table.partitioned_by),
                storage_options=dict(storage.options),
            )

    def put(self, batch: int) -> str:
        """Put a batch into bronze; returns the file."""
        lines = len(self.history.lines)
        self.history.continue_randomly(60, batch)
        values = self.history.values(after=lines)
        rows = [
            {"topic": "events", "date": AT.date(), "partition": 0, "offset": batch * 1000 + n}
            | {"timestamp": AT, "timestamp_type": 1, "value": value, "batch": batch}
            for n, value in enumerate(values)
        ]
        before = self._bronze_files()
        write_deltalake(
            path(self.storage.root, BRONZE.name),
            pa.Table.from_pylist(rows, to_arrow_schema(BRONZE.schema)),
            mode="append",
            storage_options=dict(self.storage.options),
        )
        (file,) = self._bronze_files() - before
        return file

    def _bronze_files(self) -> set[str]:
        files = self.storage.open(BRONZE).get_add_actions()
        return set(files.column("path").to_pylist())

    def write(self, batch: int, source: str) -> list[NewFile]:
        files = write_day_files(self.storage, source, batch)
        assert files
        return files

    def commit(self, batch: int, files: list[NewFile]) -> None:
        commit(self.storage.open(TRANSITIONS), TRANSITIONS, files, Transaction(STREAM, batch))

    def rows(self, table: LakeTable = TRANSITIONS) -> list[dict[str, Any]]:
        found = self.storage.open(table).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: (row["offset"], row.get("line", 0)))

    def raw(self) -> list[str]:
        return [row["raw"] for row in self.rows()]


def test_transitions_on_s3_equal_those_on_a_disk(s3: str, tmp_path: Path) -> None:
    lakes = Lake(_on_s3(s3)), Lake(Storage(str(tmp_path)))
    for lake in lakes:
        assert is_supported(lake.storage, BRONZE)
        for batch in range(2):
            source = lake.put(batch)
            lake.write(batch, source)  # and it is killed before the commit
            lake.commit(batch, lake.write(batch, source))
        assert lake.raw() == lake.history.lines
        assert lake.storage.open(TRANSITIONS).transaction_version(STREAM) == 1
    on_s3, local = lakes
    assert on_s3.rows() == local.rows()
    bounds = [
        Counter(map(str, pa.table(lake.storage.open(TRANSITIONS).get_add_actions()).select(
            ["num_records", "null_count", "min", "max"]).to_pylist()))
        for lake in lakes
    ]  # fmt: skip
    assert bounds[0] == bounds[1]


def test_a_commit_whose_answer_gets_lost_counts_once(s3: str) -> None:
    lake = Lake(_on_s3(s3, LOST))
    lake.commit(0, lake.write(0, lake.put(0)))
    assert lake.raw() == lake.history.lines
    assert lake.storage.open(TRANSITIONS).transaction_version(STREAM) == 0
    assert lake.storage.open(TRANSITIONS).version() == 1
    lake.commit(1, lake.write(1, lake.put(1)))
    assert lake.raw() == lake.history.lines


def test_files_that_are_discarded_are_gone(s3: str) -> None:
    lake = Lake(_on_s3(s3))
    files = lake.write(0, lake.put(0))
    folder = lake.storage.files(TRANSITIONS)
    discard(folder, files)
    discard(folder, files)
    assert all(not folder.get_file_info(file.path).is_file for file in files)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (
            {"access.key": "a", "secret.key": "b", "session.token": "c", "endpoint.region": "d"},
            {
                "aws_access_key_id": "a",
                "aws_secret_access_key": "b",
                "aws_session_token": "c",
                "aws_region": "d",
            },
        ),
        (
            {"endpoint": "http://127.0.0.1:9000"},
            {"aws_endpoint_url": "http://127.0.0.1:9000", "aws_allow_http": "true"},
        ),
        (
            {"endpoint": "store:9000", "connection.ssl.enabled": "false"},
            {"aws_endpoint_url": "http://store:9000", "aws_allow_http": "true"},
        ),
        (
            {"endpoint": "store", "bucket.b.endpoint": "other", "bucket.c.endpoint": "third"},
            {"aws_endpoint_url": "https://other", "aws_allow_http": "false"},
        ),
    ],
)
def test_hadoops_settings_of_s3_become_those_of_delta_rs(
    settings: dict[str, str], expected: dict[str, str]
) -> None:
    hadoop = {f"fs.s3a.{name}": value for name, value in settings.items()}
    assert dict(storages._s3_options(hadoop, "b")) == expected


def test_a_lake_that_delta_rs_cannot_open_is_left_to_spark(
    s3: str, caplog: pytest.LogCaptureFixture
) -> None:
    missing = _on_s3(s3)
    for _ in range(2):
        assert not storages._can_open(missing)
    (warning,) = caplog.messages
    assert warning.startswith(f"Spark alone writes the lake at {missing.root}")
    lake = Lake(_on_s3(s3))
    assert storages._can_open(lake.storage)


def test_another_log_store_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        def __init__(self, **settings: str) -> None:
            self.conf = {f"spark.delta.logStore.{k}.impl": v for k, v in settings.items()}

    single = "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore"
    assert not storages._has_own_log_store(Session())
    assert not storages._has_own_log_store(Session(s3a=single))
    assert storages._has_own_log_store(Session(s3a="io.delta.storage.S3DynamoDBLogStore"))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert storages._has_own_log_store(Session())
