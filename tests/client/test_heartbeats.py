"""How often a consumer sends heartbeats (R13), and that no other partition keeps it from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ringfaust.client import NoAnswer, RingConsumer, RingProducer, locate
from ringfaust.client.attachment import SHORTEST_INTERVAL_S, heartbeat_interval_s
from ringfaust.client.connection import Connection, ConnectOptions
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing import MemoryBroker

PARTITIONS = 3
DEADLINE_S = 30


@pytest.mark.parametrize(
    ("timeout_ms", "longest_s", "interval_s"),
    [
        (0, 10.0, 10.0),
        (60_000, 10.0, 10.0),
        (3_000, 10.0, 1.0),
        (1, 10.0, SHORTEST_INTERVAL_S),
        (1, 0.05, 0.05),
    ],
)
def test_the_timeout_of_the_queue_shortens_the_interval_but_not_to_nothing(
    timeout_ms: int, longest_s: float, interval_s: float
) -> None:
    assert heartbeat_interval_s(timeout_ms, longest_s) == interval_s


# --- another partition has stopped (R123) --------------------------------------------------------


@pytest.fixture
def keyed() -> Iterator[MemoryBroker]:
    """A queue for each key, and an address."""
    queues = {
        "routes": [{"topic": "keyed", "queue": "ring.{key}"}],
        "queues": {"ring.*": {}},
        "addresses": {"prices": {"retroactive_count": 2}},
    }
    with MemoryBroker(queues, application="shop", partitions=PARTITIONS) as broker:
        yield broker


@pytest.fixture
def there(keyed: MemoryBroker) -> ConnectOptions:
    return {"bootstrap_servers": keyed.bootstrap_servers, "application": "shop"}


def places() -> tuple[str, int, int]:
    """A key, the partition of its queue, which is not guessed first, and one without the queue."""
    for key in map(str, range(100)):
        home, guess = partition_of(key, PARTITIONS), partition_of(f"ring.{key}", PARTITIONS)
        if home != guess:
            return key, home, 3 - home - guess
    raise LookupError


def stop(partition: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a partition answer nothing."""
    request = Connection.request

    async def ask(self: Connection, asked: int, command: Mapping[str, Any]) -> dict[str, Any]:
        if asked == partition:
            await asyncio.sleep(self.timeout_ms / 1000)
            raise NoAnswer("no worker answers")
        return await request(self, asked, command)

    monkeypatch.setattr(Connection, "request", ask)


def heartbeats(broker: MemoryBroker) -> int:
    kinds = [json.loads(each.value or b"")["type"] for each in broker.records("shop.control")]
    return kinds.count("heartbeat")


async def test_a_consumer_of_an_empty_queue_stays_alive_and_gets_its_first_message(
    keyed: MemoryBroker, there: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, home, stopped = places()
    async with RingConsumer(f"ring.{key}", heartbeat_ms=50, **there) as consumer:
        stop(stopped, monkeypatch)
        before = heartbeats(keyed)
        async with asyncio.timeout(DEADLINE_S), RingProducer(**there) as producer:
            while heartbeats(keyed) < before + 2:
                await asyncio.sleep(0.01)
            await producer.send("keyed", "a", key=key)
            message = await consumer.receive()
            assert message.partition == home
            await message.ack(confirm=True)


async def test_a_consumer_of_a_queue_with_messages_starts(
    there: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, home, stopped = places()
    async with RingProducer(**there) as producer:
        await producer.send("keyed", "a", key=key)
    stop(stopped, monkeypatch)
    async with (
        asyncio.timeout(DEADLINE_S),
        RingConsumer(f"ring.{key}", **there) as consumer,
    ):
        assert (await consumer.receive()).partition == home


async def test_a_consumer_of_an_empty_queue_starts(
    there: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, home, stopped = places()
    stop(stopped, monkeypatch)
    monkeypatch.setattr(locate, "_GUESS_S", 0.1)
    async with (
        asyncio.timeout(DEADLINE_S),
        RingProducer(**there) as producer,
        RingConsumer(f"ring.{key}", heartbeat_ms=50, **there) as consumer,
    ):
        await producer.send("keyed", "a", key=key)
        assert (await consumer.receive()).partition == home


async def test_a_subscription_of_its_own_starts(
    there: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = partition_of("prices", PARTITIONS)
    stop((home + 1) % PARTITIONS, monkeypatch)
    async with asyncio.timeout(DEADLINE_S), RingConsumer(address="prices", **there) as consumer:
        assert consumer.partition == home
