"""Rings move from the worker to the job and back, with all that they hold."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import Process, WorkerProcess
from tests.spark.ring_rig import (
    CREDIT,
    RING_SIZE,
    RINGS,
    Rig,
    check_events,
    check_evicted,
    lines,
    without_repeats,
)

_WAIT_SECONDS = 300


def until_sent(rig: Rig, worker: Process, count: int) -> None:
    """Until so many for each ring have been taken."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while rig.count(Role.EVICTED) == 0 or len(added(rig)) < count * RINGS:
        worker.check()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def added(rig: Rig) -> set[str]:
    return {line["source"] for _, line in lines(rig.read(Role.EVENTS)) if line["event"] == "added"}


def listed(rig: Rig, reply: str) -> dict[str, Any]:
    """What each ring holds, asked of whoever serves it now."""
    for ring in range(RINGS):
        rig.command(f"r.{ring}", type="list", reply=f"{reply}-{ring}", limit=1000)
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        found = {
            record.key.decode(): json.loads(record.value)["answer"]
            for record in rig.read(Role.REPLIES)
            if record.key.decode().startswith(f"{reply}-")
        }
        if len(found) == RINGS:
            return {key.removeprefix(f"{reply}-"): answer for key, answer in found.items()}
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.kafka
@pytest.mark.parametrize("hop", ["auto", pytest.param("always", marks=pytest.mark.slow)])
def test_there_and_back(broker: EmbeddedBroker, tmp_path: Path, hop: str) -> None:
    rig = Rig(tmp_path, broker.bootstrap_servers, f"move-{hop}", hop)
    worker = WorkerProcess(tmp_path, tmp_path / "worker.log")
    worker.start()
    rig.attach()
    time_to_attach(rig)
    rig.send(0, 100)
    until_sent(rig, worker, 100)
    held = listed(rig, "by-worker")
    refused = run(rig, "ring", "--checkpoint", str(tmp_path / "checkpoint"), "--from-worker")
    assert refused.returncode == 2
    assert "1 of the workers of" in refused.stderr and "stop them all first" in refused.stderr
    worker.stop()

    rig.run_once("--from-worker")
    rig.send(100, 100)
    for ring in range(RINGS):
        rig.command(f"r.{ring}", type="list", reply=f"by-job-{ring}", limit=1000)
    rig.run_once()
    taken_over = listed(rig, "by-job")
    for ring in range(RINGS):
        assert taken_over[str(ring)]["delivering"] == held[str(ring)]["delivering"]

    done = run(rig, "move-to-worker", "--checkpoint", str(tmp_path / "checkpoint"))
    assert done.returncode == 0, done.stderr
    assert "start the worker" in done.stdout
    worker.start()
    try:
        rig.send(200, 100)
        until_sent(rig, worker, 300)
        at_the_end = listed(rig, "by-worker-again")
    finally:
        worker.stop()
    check_events(rig.read(Role.EVENTS), 300)
    check_evicted(without_repeats(rig.read(Role.EVICTED)), 300)
    for ring, answer in at_the_end.items():
        assert len(answer["ready"]) == RING_SIZE
        assert answer["counts"]["delivering"] == (CREDIT if int(ring) % 4 == 0 else 0)


def time_to_attach(rig: Rig) -> None:
    """Until the consumers are attached: what is sent before is evicted, not held."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        events = [line["event"] for _, line in lines(rig.read(Role.EVENTS))]
        if events.count("attached") == RINGS // 4:
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


def run(rig: Rig, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringfaust", "spark", *arguments, "--config", str(rig.folder)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)


@pytest.mark.kafka
def test_a_checkpoint_of_another_application_is_refused(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, broker.bootstrap_servers, "mine")
    path = tmp_path / "checkpoint" / "ringfaust" / "job.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"application": "yours", "partitions": 4, "tasks": 2}')
    refused = run(rig, "ring", "--checkpoint", str(tmp_path / "checkpoint"), "--once")
    assert refused.returncode == 2
    assert "is of a job whose application is 'yours'" in refused.stderr
