"""`ringfaust doctor` and a lake that may lose what it has not read."""

from __future__ import annotations

import time
import uuid

import pytest
from aiokafka import AIOKafkaProducer

from ringfaust.cli.lake_lag import lake_lag
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.kafka.names import lake_group
from ringfaust.kafka.offsets import commit_group_offsets
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker

HOUR_MS = 3_600_000


@pytest.mark.kafka
async def test_a_lake_that_is_behind_is_found(broker: EmbeddedBroker) -> None:
    worker = WorkerConfig(
        application=f"behind{uuid.uuid4().hex[:6]}", bootstrap_servers=broker.bootstrap_servers
    )
    queues, events = QueuesConfig(), worker.topic(Role.EVENTS)
    async with open_admin(worker.brokers()) as admin:
        await admin.create([NewTopic(events, 1, 1, {"retention.ms": str(HOUR_MS)})])
    producer = AIOKafkaProducer(bootstrap_servers=worker.bootstrap_servers)
    await producer.start()
    for minutes_ago in (50, 5):
        at_ms = int(time.time() * 1000) - minutes_ago * 60_000
        await producer.send_and_wait(events, b"{}", partition=0, timestamp_ms=at_ms)
    await producer.stop()
    assert await lake_lag(worker, queues) == [], "there is no lake"
    levels = []
    for read in range(3):
        offsets = {(events, 0): read}
        await commit_group_offsets(worker.client_options(), lake_group(worker.application), offsets)
        (finding,) = await lake_lag(worker, queues)
        levels.append(finding.level)
        if finding.level == "warn":
            assert f"topic {events} keeps records for 1.0 h" in finding.text
    assert levels == ["warn", "ok", "ok"]
