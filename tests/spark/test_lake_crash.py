"""`ringfaust spark lake` as a process: killed at any point, it ends with the same tables.

`test_lake` lets a run fail between two tables, which is quicker.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench.processes import executors
from ringfaust.config import WorkerConfig, load
from ringfaust.protocol.records import OutRecord, Role
from ringfaust.spark.lake.tables import path
from ringfaust.spark.lake.with_duckdb import open_duckdb
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.lake_history import LakeHistory, make_topics, write_topics
from tests.spark.ring_harness import paused
from tests.spark.shared_session import for_small_data, run

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
DEADLINE_S = 400
ROUNDS = 20
TEN = 10
TABLES = ("bronze", "transitions", "records", "queue_minutes", "queues")


class Harness:
    """Topics that contain a history, and the command that reads them."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        worker = {
            "application": f"crash{uuid.uuid4().hex[:6]}",
            "bootstrap_servers": broker.bootstrap_servers,
            "partitions": 1,
        }
        (folder / "queues.yaml").write_text("queues: {a: {ring_size: 3}}\n")
        (folder / "worker.yaml").write_text(json.dumps(worker))
        self.worker: WorkerConfig = load(folder)[0]
        self.history = LakeHistory(0)
        self.history.continue_randomly(100, 5)
        asyncio.run(make_topics(self.worker))
        self.event_records = 0
        self._write(self.history.values(), self.history.records)

    def write_more(self) -> None:
        lines = len(self.history.lines)
        counts = {role: len(records) for role, records in self.history.records.items()}
        self.history.continue_randomly(40, 6)
        rest = {role: records[counts[role] :] for role, records in self.history.records.items()}
        self._write(self.history.values(after=lines), rest)

    def _write(self, values: list[bytes], records: dict[Role, list[OutRecord]]) -> None:
        asyncio.run(write_topics(self.worker, 0, values, records))
        self.event_records += len(values)

    def arguments(self, root: Path, *options: str) -> list[str]:
        return ["spark", "lake", *options, "--to", str(root), "--config", str(self.folder)]

    def start(
        self, root: Path, *options: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ringfaust", *self.arguments(root, *options)]
        with (self.folder / "lake.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=env,
            )
        self.processes.append(process)
        return process

    def await_success(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(DEADLINE_S) == 0, (self.folder / "lake.log").read_text()[-3000:]

    def finish(self, root: Path) -> None:
        """Read the rest, in this process."""
        run(self.spark, *self.arguments(root, "--once"))

    def check(self, root: Path) -> None:
        """Each line and record is there once, and each message ended as its line says."""
        lines = _rows(root, "transitions", "offset", "line")
        assert [row["raw"] for row in lines] == self.history.lines
        for role, records in self.history.records.items():
            found = [x for x in _rows(root, "records", "offset") if x["role"] == str(role)]
            assert [row["value"] for row in found] == [value for _, value, _ in records]
        written = self.event_records + sum(map(len, self.history.records.values()))
        assert len(_rows(root, "bronze")) == written
        added = [x for x in lines if x["event"] in ("added", "scheduled")]
        messages = _view(root, "messages_now", "added_step")
        assert [x["added_step"] for x in messages] == [x["step"] for x in added]
        dispatched = [x["delivery"] for x in lines if x["event"] == "dispatched"]
        assert [x["delivery"] for x in _view(root, "deliveries_now", "delivery")] == dispatched
        minutes = _rows(root, "queue_minutes")
        for event in ("dispatched", "acked", "evicted", "expired", "dead"):
            count = sum(x["event"] == event for x in lines)
            assert sum(x[event] for x in minutes) == count, event
            if event != "dispatched":
                assert sum(x["fate"] == event for x in messages) == count, event
        assert _rows(root, "quarantine") == []


@pytest.fixture
def harness(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Harness]:
    made = Harness(spark, broker, tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            _kill(process)


def _rows(root: Path, table: str, *order: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(path(str(root), table)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: [row[name] for name in order])


def _view(root: Path, view: str, order: str) -> list[dict[str, Any]]:
    found = open_duckdb(str(root)).sql(f"SELECT * FROM {view} ORDER BY {order}")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill Python and Java, as a power cut would."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _await_commit(process: subprocess.Popen[bytes], root: Path, table: str, version: int) -> None:
    """Wait for a commit of a table, so that a kill comes between it and the next table's."""
    commit = Path(path(str(root), table), "_delta_log", f"{version:020d}.json")
    deadline = time.monotonic() + DEADLINE_S
    while not commit.exists():
        assert process.poll() is None, "it ended before the kill"
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    "tables", [["queue_minutes"], ["transitions", "queue_minutes"]], ids=["once", "twice"]
)
def test_killed_after_the_commit_of_a_table_it_continues(
    harness: Harness, tmp_path: Path, tables: list[str]
) -> None:
    root = tmp_path / "lake"
    for table in tables:
        process = harness.start(root, "--once", env=for_small_data(tmp_path))
        _await_commit(process, root, table, 1)
        _kill(process)
    harness.finish(root)
    harness.check(root)


def test_it_runs_on_a_cluster(harness: Harness, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    process = harness.start(root, "--once", "--master", "local-cluster[2,1,1024]")
    harness.await_success(process)
    harness.check(root)


def test_it_runs_until_sigterm(harness: Harness, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    process = harness.start(root)
    _await_commit(process, root, "queue_minutes", 1)
    harness.write_more()
    _await_commit(process, root, "queue_minutes", 2)
    _await_commit(process, root, "records", 2)
    process.send_signal(signal.SIGTERM)  # the rest of gold is missing
    harness.await_success(process)
    harness.finish(root)  # and is written now
    harness.check(root)


def runs(
    harness: Harness, folder: Path, rng: random.Random, count: int, *options: str
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Lakes, each with a run that has just committed to some table."""
    for number in range(count):
        root = folder / f"lake-{number}"
        process = harness.start(root, "--once", *options)
        _await_commit(process, root, rng.choice(TABLES), 1)
        yield root, process


@pytest.mark.timeout(3600)
def test_paused_anywhere_ten_times_while_another_goes_on_it_repeats_nothing(
    harness: Harness, tmp_path: Path
) -> None:
    """Meanwhile files are combined, and those that are not used any more deleted."""
    rng = random.Random(3)
    for root, process in runs(harness, tmp_path, rng, TEN):
        time.sleep(rng.random() / 2)
        with paused(process.pid):
            harness.finish(root)
            run(harness.spark, "spark", "maintain", "--lake", str(root))
        process.wait(DEADLINE_S)  # with success, or because another one has been there
        harness.finish(root)
        harness.check(root)


@pytest.mark.timeout(3600)
def test_executors_killed_ten_times_it_continues(harness: Harness, tmp_path: Path) -> None:
    rng = random.Random(5)
    cluster = ("--master", "local-cluster[2,1,1024]")
    for root, process in runs(harness, tmp_path, rng, TEN, *cluster):
        os.kill(rng.choice(executors(process.pid)), signal.SIGKILL)
        harness.await_success(process)
        harness.check(root)


@pytest.mark.timeout(3600)
def test_killed_anywhere_twenty_times_it_continues(harness: Harness, tmp_path: Path) -> None:
    rng = random.Random(7)
    for root, process in runs(harness, tmp_path, rng, ROUNDS):
        time.sleep(rng.random() / 2)
        _kill(process)
        harness.finish(root)
        harness.check(root)
