"""kill -9 of a ring job's driver and of its executors: what comes out is exact."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import Process
from tests.spark.ring_rig import Rig, check_events, check_evicted, without_repeats

PIECE = 400
"""Records for each ring between two kills."""
_WAIT_SECONDS = 300


def until(done: Callable[[], bool], job: Process) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not done():
        job.check()
        if time.monotonic() > deadline:
            raise job.failed(f"did not come on for {_WAIT_SECONDS} s")
        time.sleep(0.1)


def wait_for_a_moment(rig: Rig, job: Process, chance: random.Random) -> None:
    """Until something new has come out, and a little more: any point of a micro-batch."""
    before = rig.count(Role.EVENTS)
    until(lambda: rig.count(Role.EVENTS) > before, job)
    time.sleep(chance.random())


def check(rig: Rig, sent: int) -> None:
    rig.run_once()
    check_events(rig.read(Role.EVENTS), sent)
    check_evicted(without_repeats(rig.read(Role.EVICTED)), sent)


def kill_the_driver(rig: Rig, rounds: int) -> int:
    """How many records each ring was sent."""
    chance = random.Random(rounds)
    job = rig.job("--batch-records", "3000")
    rig.attach()
    for round_ in range(rounds):
        job.start()
        rig.send(round_ * PIECE, PIECE)
        wait_for_a_moment(rig, job, chance)
        job.kill()
    return rounds * PIECE


@pytest.mark.kafka
def test_driver_killed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker.bootstrap_servers, "kill-driver")
    check(rig, kill_the_driver(rig, 1))


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_driver_killed_ten_times(broker: EmbeddedBroker, tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker.bootstrap_servers, "kill-drivers")
    check(rig, kill_the_driver(rig, 10))


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_executors_killed_ten_times(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """On a cluster of two executors, the package shipped to them."""
    rig = Rig(tmp_path, broker.bootstrap_servers, "kill-executors")
    chance = random.Random(5)
    job = rig.job("--batch-records", "3000", "--master", "local-cluster[2,1,2048]")
    rig.attach()
    job.start()
    try:
        for round_ in range(10):
            rig.send(round_ * PIECE, PIECE)
            wait_for_a_moment(rig, job, chance)
            os.kill(chance.choice(executors(job)), signal.SIGKILL)
        until(lambda: rig.count(Role.EVENTS) > 0, job)
    finally:
        job.stop()
    check(rig, 10 * PIECE)


def executors(job: Process) -> list[int]:
    """Process ids of the executors that are of this job's session."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"CoarseGrainedExecutorBackend" in path.read_bytes():
                    pid = int(path.parent.name)
                    found += [pid] if os.getsid(pid) == job.pid else []
            except (FileNotFoundError, ProcessLookupError):
                continue
        if found:
            return found
        job.check()
        assert time.monotonic() < deadline, "no executor came up"
        time.sleep(0.1)
