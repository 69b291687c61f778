"""After kill -9 of a ring job's driver or of its executors the output is exact.

`test_ring_scenarios` kills a job once, which is quicker.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.config import load
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.command import audit
from ringfaust.spark.audit.verdict import AuditRequest
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import Process
from tests.spark.ring_harness import (
    RingHarness,
    check_dispatched,
    check_events,
    check_evicted,
    until,
)
from tests.spark.shared_session import run

PIECE = 400
"""Records for each ring between two kills."""


def wait_for_output(harness: RingHarness, job: Process, chance: random.Random) -> None:
    """Wait for new output, and then up to a second, for any point of a micro-batch."""
    before = harness.count(Role.EVENTS)
    until(lambda: harness.count(Role.EVENTS) > before, job)
    time.sleep(chance.random())


def finish_and_check(spark: SparkSession, harness: RingHarness, sent: int) -> None:
    run(spark, *harness.arguments("--once"))
    check_events(harness.read(Role.EVENTS), sent)
    check_evicted(harness.read(Role.EVICTED), sent)
    check_dispatched(harness.read(Role.DISPATCHED))
    verdict = audit(spark, AuditRequest(*load(harness.folder), repeats_are_faults=True))
    assert verdict.balanced and verdict.repeats == 0


def kill_the_driver(harness: RingHarness, rounds: int) -> int:
    """Kill the driver once a round; returns how many records each ring was sent."""
    chance = random.Random(rounds)
    job = harness.job("--batch-records", "3000")
    harness.attach()
    for round_ in range(rounds):
        job.start()
        harness.send(round_ * PIECE, PIECE)
        wait_for_output(harness, job, chance)
        job.kill()
    return rounds * PIECE


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_output_is_exact_after_the_driver_was_killed_ten_times(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "kill-drivers")
    finish_and_check(spark, harness, kill_the_driver(harness, 10))


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_output_is_exact_after_executors_were_killed_ten_times(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """On a cluster of two executors, to which the package is sent."""
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "kill-executors")
    chance = random.Random(5)
    job = harness.job("--batch-records", "3000", "--master", "local-cluster[2,1,2048]")
    harness.attach()
    job.start()
    try:
        for round_ in range(10):
            harness.send(round_ * PIECE, PIECE)
            wait_for_output(harness, job, chance)
            os.kill(chance.choice(await_executors(job)), signal.SIGKILL)
        until(lambda: harness.count(Role.EVENTS) > 0, job)
    finally:
        job.stop()
    finish_and_check(spark, harness, 10 * PIECE)


def await_executors(job: Process) -> list[int]:
    """Process ids of the job's executors, of which at least one runs."""
    until(lambda: bool(executors(job)), job)
    return executors(job)


def executors(job: Process) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"CoarseGrainedExecutorBackend" in path.read_bytes():
                pid = int(path.parent.name)
                found += [pid] if os.getsid(pid) == job.pid else []
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
