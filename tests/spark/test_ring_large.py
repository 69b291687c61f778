"""Messages far larger than what one read of a socket gives: whole in the state, and whole again."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from ringfaust.protocol.records import Role
from ringfaust.spark.ring.command import OldSpark, refuse_old_spark
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.ring_rig import RING_SIZE, Rig

BODY_BYTES = 600_000
OVER = 5


@pytest.mark.kafka
def test_large_messages_survive_the_state(broker: EmbeddedBroker, tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker.bootstrap_servers, "large")
    chance = random.Random(7)
    bodies = [chance.randbytes(BODY_BYTES) for _ in range(RING_SIZE + OVER)]

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=rig.servers) as producer:
            for body in bodies:
                await producer.send_and_wait("large.sent", body, key=b"0")

    asyncio.run(send())
    # Batches of fewer than the ring holds: what is evicted was read back from the state.
    rig.run_once("--batch-records", "20")
    evicted = [record.value for record in rig.read(Role.EVICTED)]
    assert evicted == bodies[:OVER]


@pytest.mark.parametrize("version", ["4.0.0", "4.0.1"])
def test_a_spark_that_cuts_state_short_is_refused(version: str) -> None:
    with pytest.raises(OldSpark, match=rf"Spark {version} .* 4\.0\.2"):
        refuse_old_spark(version)


@pytest.mark.parametrize("version", ["4.0.2", "4.0.10", "4.1.0", "4.2.0-SNAPSHOT", "5.0.0"])
def test_others_are_taken(version: str) -> None:
    refuse_old_spark(version)
