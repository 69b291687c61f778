"""Signs of life on a real broker (R126)."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.kafka.sign_topic import SignTopic
from ringfaust.testing.broker import EmbeddedBroker

pytestmark = pytest.mark.kafka


async def first(signs: SignTopic, count: int) -> list[tuple[str, bool]]:
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
        for worker, is_alive in (("a", True), ("b", True), ("a", True), ("b", False)):
            await early.write(worker, is_alive=is_alive)
        await late.start()
        await late.write("c", is_alive=True)
        assert await first(late, 2) == [("a", True), ("c", True)]
    finally:
        await early.stop()
        await late.stop()
