"""`ringfaust spark lake` as a process of its own: killed anywhere, it ends with the same tables."""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ringfaust.config import WorkerConfig, load
from ringfaust.protocol.records import OutRecord, Role
from ringfaust.spark.lake.tables import TABLES, path
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.lake_story import Story, make_topics, tell

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
DEADLINE_S = 400
ROUNDS = 20


class Told:
    """Topics with a story in them, and a folder for the command."""

    def __init__(self, broker: EmbeddedBroker, folder: Path) -> None:
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
        self.story = Story(0)
        self.story.go_on(200, 5)
        asyncio.run(make_topics(self.worker))
        self.event_records = 0
        self._tell(self.story.values(), self.story.records)

    def go_on(self) -> None:
        """Tell more of it."""
        lines = len(self.story.lines)
        records = {role: len(told) for role, told in self.story.records.items()}
        self.story.go_on(40, 6)
        rest = {role: told[records[role] :] for role, told in self.story.records.items()}
        self._tell(self.story.values(after=lines), rest)

    def _tell(self, values: list[bytes], records: dict[Role, list[OutRecord]]) -> None:
        asyncio.run(tell(self.worker, 0, values, records))
        self.event_records += len(values)

    def start(self, root: Path, *options: str) -> subprocess.Popen[bytes]:
        command = ["-m", "ringfaust", "spark", "lake", *options, "--to", str(root)]
        with (self.folder / "lake.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command, "--config", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def finish(self, root: Path, *options: str) -> None:
        process = self.start(root, "--once", *options)
        assert process.wait(DEADLINE_S) == 0, (self.folder / "lake.log").read_text()[-3000:]

    def check(self, root: Path) -> None:
        """Every line and record once, and every message with the fate that its line told."""
        lines = _rows(root, "transitions", "offset", "line")
        assert [row["raw"] for row in lines] == self.story.lines
        for role, records in self.story.records.items():
            found = [x for x in _rows(root, "records", "offset") if x["role"] == str(role)]
            assert [row["value"] for row in found] == [value for _, value, _ in records]
        told = self.event_records + sum(map(len, self.story.records.values()))
        assert len(_rows(root, "bronze")) == told
        added = [x for x in lines if x["event"] in ("added", "scheduled")]
        messages = _rows(root, "messages", "added_step")
        assert [x["added_step"] for x in messages] == [x["step"] for x in added]
        dispatched = [x["delivery"] for x in lines if x["event"] == "dispatched"]
        assert [x["delivery"] for x in _rows(root, "deliveries", "delivery")] == dispatched
        minutes = _rows(root, "queue_minutes")
        for event in ("dispatched", "acked", "evicted", "expired", "dead"):
            lines_told = sum(x["event"] == event for x in lines)
            assert sum(x[event] for x in minutes) == lines_told, event
            if event != "dispatched":
                assert sum(x["fate"] == event for x in messages) == lines_told, event
        assert _rows(root, "repeats") == []
        assert _rows(root, "quarantine") == []


@pytest.fixture
def told(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Told]:
    made = Told(broker, tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            _kill(process)


def _rows(root: Path, table: str, *order: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(path(str(root), table)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: [row[name] for name in order])


def _kill(process: subprocess.Popen[bytes]) -> None:
    """All of it, Java too: as a power cut would."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _await_commit(process: subprocess.Popen[bytes], root: Path, table: str, version: int) -> None:
    """Wait for a commit of a table, so that the kill comes between it and the next table's."""
    commit = Path(path(str(root), table), "_delta_log", f"{version:020d}.json")
    deadline = time.monotonic() + DEADLINE_S
    while not commit.exists():
        assert process.poll() is None, "it ended before the kill"
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("table", ["transitions", "messages"])
def test_killed_after_a_table_it_goes_on_where_it_was(
    told: Told, tmp_path: Path, table: str
) -> None:
    root = tmp_path / "lake"
    process = told.start(root, "--once")
    _await_commit(process, root, table, 1)
    _kill(process)
    told.finish(root)
    told.check(root)


def test_it_runs_on_a_cluster(told: Told, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    told.finish(root, "--master", "local-cluster[2,1,1024]")
    told.check(root)


def test_it_goes_on_until_it_is_told_to_end(told: Told, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    process = told.start(root)
    _await_commit(process, root, "messages", 1)
    told.go_on()
    _await_commit(process, root, "messages", 2)
    _await_commit(process, root, "records", 2)
    process.send_signal(signal.SIGTERM)  # what of gold is not there yet
    assert process.wait(DEADLINE_S) == 0, (told.folder / "lake.log").read_text()[-3000:]
    told.finish(root)  # is made up for
    told.check(root)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_anywhere_twenty_times(told: Told, tmp_path: Path) -> None:
    rng = random.Random(7)
    tables = [name for name in TABLES if name not in ("repeats", "quarantine", "deletions")]
    for round_ in range(ROUNDS):
        root = tmp_path / f"lake-{round_}"
        process = told.start(root, "--once")
        _await_commit(process, root, rng.choice(tables), 1)
        time.sleep(rng.random() / 2)
        _kill(process)
        told.finish(root)
        told.check(root)
