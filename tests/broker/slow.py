"""A producer that is slow at a bad moment."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer


def hear_before(producer: AIOKafkaProducer, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the producer learn that its transaction has ended before it sends to this topic."""
    known = producer.client._wait_on_metadata

    async def later(name: str) -> object:
        async with asyncio.timeout(30):
            while name == topic and producer._txn_manager.is_in_transaction():
                await asyncio.sleep(0.01)
        return await known(name)

    monkeypatch.setattr(producer.client, "_wait_on_metadata", later)
