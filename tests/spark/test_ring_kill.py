"""A ring job's output is exact, whether its driver or executors are killed or its driver is paused.

`make chaos-spark` kills the driver ten times and executors ten times, and pauses the driver ten
times while another run continues, all under load. `test_ring_scenarios` kills a job once, which is
quicker.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.processes import executors
from ringfaust.config import load
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.rounds import audit
from ringfaust.spark.audit.sources import AuditRequest
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import Process
from tests.spark.ring_harness import (
    RingHarness,
    check_dispatched,
    check_events,
    check_evicted,
    paused,
    until,
)
from tests.spark.shared_session import run

KILLS = 10
OUSTED_S = 120.0
"""How long a driver may take to notice that another one has gone on."""
PIECE = 25
"""Records that each ring is sent at a time."""
PACE_S = 0.4
"""Pause between two pieces: 1,000 records a second, also while no job runs."""


class Load:
    """Sends records to all rings in a thread."""

    def __init__(self, harness: RingHarness) -> None:
        self._harness = harness
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._failed: Exception | None = None
        self.sent = 0
        """Records that each ring was sent."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send while the body runs. Raises what stopped the load."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
        if self._failed:
            raise self._failed

    def _send(self) -> None:
        try:
            while not self._stop.wait(PACE_S):
                self._harness.send(self.sent, PIECE)
                self.sent += PIECE
        except Exception as error:  # noqa: BLE001 - raised in the test's thread
            self._failed = error


def wait_for_output(harness: RingHarness, job: Process, chance: random.Random) -> None:
    """Wait for new output, and then up to a second, for any point of a micro-batch."""
    before = harness.count(Role.EVENTS)
    until(lambda: harness.count(Role.EVENTS) > before, job)
    time.sleep(chance.random())


def finish_and_check(spark: SparkSession, harness: RingHarness, sent: int, what: str) -> None:
    """A reader with read_committed misses nothing and finds nothing twice."""
    run(spark, *harness.arguments("--once"))
    evicted, dispatched = harness.read(Role.EVICTED), harness.read(Role.DISPATCHED)
    check_events(harness.read(Role.EVENTS), sent)
    check_evicted(evicted, sent)
    check_dispatched(dispatched)
    verdict = audit(spark, AuditRequest(*load(harness.folder), repeats_are_faults=True))
    assert verdict.balanced and verdict.repeats == 0
    print(
        f"\n{KILLS} {what} under load: {verdict.inputs:,} records in, "
        f"{len(evicted):,} evicted and {len(dispatched):,} dispatched exactly once, "
        f"audit with --repeats fail: {sum(verdict.kinds.values())} findings"
    )


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_output_is_exact_after_the_driver_was_killed_ten_times(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "kill-drivers")
    chance = random.Random(KILLS)
    job = harness.job("--batch-records", "3000")
    harness.attach()
    with (sending := Load(harness)).running():
        for _ in range(KILLS):
            job.start()
            wait_for_output(harness, job, chance)
            job.kill()
    finish_and_check(spark, harness, sending.sent, "kills of the driver")


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
        with (sending := Load(harness)).running():
            for _ in range(KILLS):
                wait_for_output(harness, job, chance)
                os.kill(chance.choice(await_executors(job)), signal.SIGKILL)
            wait_for_output(harness, job, chance)
    finally:
        job.stop()
    finish_and_check(spark, harness, sending.sent, "kills of executors")


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_output_is_exact_after_the_driver_was_paused_ten_times_while_another_went_on(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "pause-drivers")
    chance = random.Random(3)
    job = harness.job("--batch-records", "3000")
    harness.attach()
    with (sending := Load(harness)).running():
        for _ in range(KILLS):
            job.start()
            wait_for_output(harness, job, chance)
            with paused(job.pid):
                run(spark, *harness.arguments("--once"))
            job.wait(OUSTED_S)  # the other one has what it was about to write
    finish_and_check(spark, harness, sending.sent, "pauses of the driver")


def await_executors(job: Process) -> list[int]:
    """Process ids of the job's executors, of which at least one runs."""
    until(lambda: bool(executors(job.pid)), job)
    return executors(job.pid)
