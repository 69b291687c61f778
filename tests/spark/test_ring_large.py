"""Messages far larger than one read of a socket are stored in the state completely."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.protocol.records import Role
from ringfaust.spark.ring.command import OldSpark, refuse_old_spark
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.ring_harness import RING_SIZE, RingHarness
from tests.spark.shared_session import run

BODY_BYTES = 600_000
OVER = 5


@pytest.mark.kafka
def test_large_messages_survive_the_state(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "large")
    chance = random.Random(7)
    bodies = [chance.randbytes(BODY_BYTES) for _ in range(RING_SIZE + OVER)]

    harness.write({"topic": "large.sent", "value": body, "key": b"0"} for body in bodies)
    # A batch is smaller than the ring, so evicted messages have been read back from the state.
    run(spark, *harness.arguments("--once", "--batch-records", "20"))
    evicted = [record.value for record in harness.read(Role.EVICTED)]
    assert evicted == bodies[:OVER]


@pytest.mark.parametrize("version", ["4.0.0", "4.0.1"])
def test_a_spark_that_truncates_state_is_refused(version: str) -> None:
    with pytest.raises(OldSpark, match=rf"Spark {version} .* 4\.0\.2"):
        refuse_old_spark(version)


@pytest.mark.parametrize("version", ["4.0.2", "4.0.10", "4.1.0", "4.2.0-SNAPSHOT", "5.0.0"])
def test_newer_versions_of_spark_are_accepted(version: str) -> None:
    refuse_old_spark(version)
