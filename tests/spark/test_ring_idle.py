"""A ring job that starts without new records still fires its timers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role
from ringfaust.spark import files
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.times import wall_ms
from tests.spark.ring_harness import RingHarness, lines
from tests.spark.shared_session import run

TTL_MS = 3_600_000


@pytest.mark.kafka
def test_a_message_expires_although_no_record_has_come_since_the_start(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark alone would wait for a record before it looks at the first timer."""
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "idle")

    def events() -> list[str]:
        return [line["event"] for _, line in lines(harness.read(Role.EVENTS))]

    headers = [(h.TTL_MS, b"%d" % TTL_MS)]
    harness.write([{"topic": "idle.sent", "key": b"1", "value": b"x", "headers": headers}])
    run(spark, *harness.arguments("--once"))
    assert events() == ["added"]
    monkeypatch.setattr(files, "wall_ms", lambda: wall_ms() + 2 * TTL_MS)
    run(spark, *harness.arguments("--once"))
    assert events() == ["added", "expired"]
