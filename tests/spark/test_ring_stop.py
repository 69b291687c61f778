"""SIGTERM while one micro-batch follows the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.ring_harness import RINGS, RingHarness, check_evicted, until
from tests.spark.shared_session import run

MESSAGES = 1_000
"""For each ring: forty micro-batches, which follow without a pause."""


@pytest.mark.kafka
@pytest.mark.usefixtures("small_data_processes")
def test_sigterm_ends_the_job_between_two_micro_batches(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "stopped")
    harness.attach()
    harness.send(0, MESSAGES)
    job = harness.job("--batch-records", "400", "--trigger-ms", "0")
    job.start()
    until(lambda: harness.count(Role.EVENTS) > 0, job)
    job.stop()
    assert harness.count(Role.EVICTED) < MESSAGES * RINGS / 2, "it read to the end instead"

    run(spark, *harness.arguments("--once"))
    check_evicted(harness.read(Role.EVICTED), MESSAGES)  # none repeated
