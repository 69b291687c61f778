"""A whole lake on S3 has the contents of one on a local disk, also if a batch is repeated."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

from ringfaust.config import WorkerConfig
from ringfaust.java.jars import Bundle, fetch
from ringfaust.spark.lake.tables import TABLES
from ringfaust.spark.lake.views import VIEWS
from ringfaust.spark.lake.with_duckdb import open_duckdb
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.lake_history import LakeHistory, make_topics, write_topics
from tests.spark.s3_server import BUCKET, options, s3_server
from tests.spark.shared_session import for_small_data

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
HADOOP_AWS = Bundle(
    "hadoop-aws-3.4.1",
    "hadoop-aws.lock",
    "hadoop-aws 3.4.1 with the AWS SDK",
    "9 MB",
    "leave this test out",
    package="tests.spark",
)
DAY_MS = 86_400_000


class Lakes:
    """Topics with three batches' worth of a history, and lakes that are written from them."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.worker = WorkerConfig(
            application=f"s3{uuid.uuid4().hex[:6]}",
            bootstrap_servers=broker.bootstrap_servers,
            partitions=1,
        )
        (folder / "worker.yaml").write_text(self.worker.model_dump_json(exclude_defaults=True))
        (folder / "queues.yaml").write_text("queues: {a: {ring_size: 3}}\n")
        self.environment = for_small_data(folder)
        settings = {
            "spark.driver.extraClassPath": f"{fetch(HADOOP_AWS)}/*",
            "spark.hadoop.fs.s3a.endpoint": url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "test",
            "spark.hadoop.fs.s3a.secret.key": "test",
        }
        with (folder / "spark-defaults.conf").open("a") as file:
            file.writelines(f"{name} {value}\n" for name, value in settings.items())
        self.history = LakeHistory(0)
        asyncio.run(make_topics(self.worker))

    def write_more(self) -> None:
        """Continue the history on the next day."""
        records = {role: len(each) for role, each in self.history.records.items()}
        lines = len(self.history.lines)
        self.history.now_ms += DAY_MS
        self.history.continue_randomly(60, lines)
        rest = {role: each[records[role] :] for role, each in self.history.records.items()}
        values = self.history.values(after=lines)
        asyncio.run(write_topics(self.worker, 0, values, rest))

    def catch_up(self, root: str) -> None:
        """Let a lake read the rest."""
        command = [sys.executable, "-m", "ringfaust", "spark", "lake", "--once"]
        command += ["--to", root, "--config", str(self.folder)]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=400, check=False
        )
        (self.folder / "lake.log").write_text(done.stderr)
        assert done.returncode == 0, done.stderr[:3000]

    def delete(self, root: str, name: str) -> None:
        """Delete a file of a lake on S3, which exists."""
        files = PyFileSystem(DeltaStorageHandler(root, options=dict(options(self.url))))
        assert files.get_file_info(name).is_file, name
        files.delete_file(name)


def _contents(root: str, options: Mapping[str, str] | None = None) -> dict[str, Counter[Any]]:
    connection = open_duckdb(root, options)
    found = {}
    for name in (*TABLES, *VIEWS):
        columns = sorted(connection.sql(f"SELECT * FROM {name} LIMIT 0").columns)
        selected = ", ".join(f'"{column}"' for column in columns)
        rows = connection.sql(f"SELECT {selected} FROM {name}").fetchall()
        found[name] = Counter(map(str, rows))
    return found


def test_a_lake_on_s3_equals_a_local_one(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with s3_server() as url:
        lakes = Lakes(broker, tmp_path, url)
        on_s3, local = f"s3a://{BUCKET}/lake", str(tmp_path / "lake")
        for _ in range(2):
            lakes.write_more()
            for root in (on_s3, local):
                lakes.catch_up(root)
        for name in ("checkpoints/events/commits", "marks/events", "marks/gold"):
            lakes.delete(on_s3, f"state/{name}/1")  # as if killed before they were written
        lakes.catch_up(on_s3)
        found = _contents(on_s3, dict(options(url)))
        expected = _contents(local)
    for name, rows in expected.items():
        assert found[name] == rows, name
        assert rows or name in ("quarantine", "scheduled", "deletions"), name
    assert expected["transitions"].total() == len(lakes.history.lines)
