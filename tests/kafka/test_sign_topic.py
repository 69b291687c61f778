"""Signs of life on a real broker (R126)."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.kafka.sign_topic import SignTopic
from ringfaust.protocol.status import Sign
from ringfaust.testing.broker import EmbeddedBroker

pytestmark = pytest.mark.kafka


async def first(signs: SignTopic, count: int) -> list[Sign]:
    found = []
    async with asyncio.timeout(30):
        async for sign in signs.read():
            found.append(sign)
            if len(found) == count:
                break
    return found


async def test_one_that_starts_knows_who_lived_until_then(broker: EmbeddedBroker) -> None:
    """Whoever dies right after its start is replaced as soon as anybody else."""
    client = {"bootstrap_servers": broker.bootstrap_servers}
    async with open_admin(WorkerConfig(**client).brokers()) as admin:
        await admin.create([NewTopic("sign-topic", 1, 1, {})])
    early, late = (SignTopic(client, "sign-topic") for _ in range(2))
    try:
        await early.start()
        for sign in (Sign("a", 9), Sign("b", 9), Sign("a", 750), Sign("b", is_alive=False)):
            await early.write(sign)
        await late.start()
        await late.write(Sign("c", 5_000))
        await late.write(Sign("a", is_alive=False))
        found = await first(late, 3)
        assert found == [Sign("a", 750), Sign("c", 5_000), Sign("a", is_alive=False)]
    finally:
        await early.stop()
        await late.stop()
