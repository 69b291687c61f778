"""The two producers of a partition: nobody serves it while they start (R124)."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError

from ringfaust.kafka.transactions import TransactionalProducer
from ringfaust.transactional.writer import TransactionalWriter


def producer() -> TransactionalProducer:
    return TransactionalProducer("a", 0, {}, {"bootstrap_servers": "localhost:1"}, "id")


async def test_they_start_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = asyncio.Barrier(2)

    async def start(_: TransactionalWriter) -> None:
        await both.wait()  # one after the other would wait here for ever

    monkeypatch.setattr(TransactionalWriter, "start", start)
    started = producer()
    async with asyncio.timeout(10):
        await started.start()
    await started.stop()


async def test_if_one_fails_the_other_is_not_left_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of aiokafka that is stopped while it starts stays connected."""
    ended: list[str] = []

    async def start(writer: TransactionalWriter) -> None:
        if not ended:
            ended.append("failed")
            raise KafkaConnectionError
        await asyncio.sleep(0)
        ended.append("started")

    monkeypatch.setattr(TransactionalWriter, "start", start)
    failed = producer()
    with pytest.raises(KafkaConnectionError):
        await failed.start()
    await failed.stop()
    assert ended == ["failed", "started"]


async def test_if_they_cannot_start_a_block_stops_them() -> None:
    failed = producer()
    with pytest.raises(KafkaConnectionError):
        async with failed:
            pass
    assert all(writer.producer._closed for writer in failed._writers)
