"""A transaction whose outcome is unknown is not ended again with the same epoch (R117).

The proxy holds a request back and closes the connection, so the producer cannot know its outcome.
Later the request reaches the broker, as after a slow network (KAFKA-17754).
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest
from aiokafka.errors import KafkaError

from ringfaust.client.brokers import KafkaBrokers
from ringfaust.client.errors import OutcomeUnknown
from ringfaust.client.transactions import ClientTransactions
from ringfaust.kafka.offsets import group_offsets
from ringfaust.protocol.records import OutgoingRecord
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.proxy import END_TXN, TXN_OFFSET_COMMIT, Proxy
from tests.broker.test_commit import (
    input_offsets,
    new_producer,
    new_topics,
    packed,
    read_all,
    version,
    with_and_without_offsets,
)

pytestmark = pytest.mark.kafka

__all__ = ["version"]  # each test runs with both versions of transactions

INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED = 47, 51, 90


@pytest.fixture
async def proxy(broker: EmbeddedBroker) -> AsyncIterator[tuple[Proxy, str]]:
    proxy = Proxy(broker.bootstrap_servers)
    async with proxy.running() as servers:
        yield proxy, servers


async def late_error(between: Proxy, version: int) -> int:
    """Deliver the late END_TXN. Returns its error code.

    The broker answers a commit before it has written all markers. Until then it refuses the late
    request for the time being, so this repeats it until the answer is final.
    """
    late = list(between.late)
    while True:
        (answer,) = await between.deliver()
        # The error code follows the correlation id, the tags and the throttle time.
        (error,) = struct.unpack_from(">h", answer, 8 if version == 1 else 9)
        if error != CONCURRENT_TRANSACTIONS:
            return error
        between.late = list(late)


@with_and_without_offsets
async def test_a_late_commit_cannot_reach_the_next_transaction_of_a_worker(
    broker: EmbeddedBroker, proxy: tuple[Proxy, str], version: int, offset: int | None
) -> None:
    """R117: today's producer ended twice, and the late request committed half of the next batch."""
    between, servers = proxy
    names = await new_topics(broker, changelog=1 << 20, evicted=1 << 20)
    first = new_producer(servers, names)
    await first.start()
    between.lose(END_TXN)
    for _ in range(2):  # the second time nothing is sent
        with pytest.raises(KafkaError):
            await first.commit(
                packed(first, evicted=b"1"), [(b"row", b"1")], input_offsets(names, offset)
            )
    assert list(between.ended.values()) == [1]
    await first.stop()
    assert list(between.ended.values()) == [1]

    second = new_producer(servers, names)
    await second.start()
    try:
        await second._writers[0].producer.begin_transaction()
        await second._writers[0].producer.send_and_wait(names["evicted"], b"half", partition=0)
        error = await late_error(between, version)
        assert error in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
        await second._writers[0].producer.abort_transaction()
        await second.commit(packed(second, evicted=b"2"), [(b"row", b"2")], {})
        assert await read_all(broker, names["evicted"]) == [b"2"]
        assert await read_all(broker, names["changelog"]) == [b"2"]
        assert set(between.ended.values()) == {1}
    finally:
        await second.stop()


async def test_a_lost_offset_commit_is_not_repeated_either(
    broker: EmbeddedBroker, proxy: tuple[Proxy, str]
) -> None:
    """R117: late, it would set the offsets of the next transaction back."""
    between, servers = proxy
    names = await new_topics(broker, changelog=1 << 20, evicted=1 << 20)
    name, evicted = names["changelog"], names["evicted"]
    first = new_producer(servers, names)
    await first.start()
    between.lose(TXN_OFFSET_COMMIT)
    with pytest.raises(KafkaError):
        await first.commit(packed(first, evicted=b"1"), [], {evicted: 1})
    await first.stop()
    second = new_producer(servers, names)
    await second.start()
    await second.commit(packed(second, evicted=b"2"), [], {evicted: 2})
    await between.deliver()
    await second.stop()
    found = await group_offsets({"bootstrap_servers": servers}, name, [(evicted, 0)])
    assert found[evicted, 0].offset == 2
    assert await read_all(broker, evicted) == [b"2"]


async def test_a_client_does_not_commit_twice(
    broker: EmbeddedBroker, proxy: tuple[Proxy, str], version: int
) -> None:
    """R117: the transaction's outcome is reported as unknown, and the next one has a new epoch."""
    between, servers = proxy
    topic = (await new_topics(broker, evicted=1 << 20))["evicted"]
    writer = ClientTransactions(KafkaBrokers({"bootstrap_servers": servers}), f"client-{topic}")
    try:
        between.lose(END_TXN)
        with pytest.raises(OutcomeUnknown):
            await writer.write([OutgoingRecord(topic, b"1", partition=0)])
        await writer.write([OutgoingRecord(topic, b"2", partition=0)])
        error = await late_error(between, version)
        assert error in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    finally:
        await writer.close()
    assert [(each.epoch, each.commit) for each in between.ended] == [(0, True), (2, True)]
    assert set(between.ended.values()) == {1}
    assert await read_all(broker, topic) == [b"2"]


async def test_a_client_does_not_abort_twice(
    broker: EmbeddedBroker, proxy: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R117: a late abort could end the next transaction, too."""
    between, servers = proxy
    topic = (await new_topics(broker, evicted=1 << 20))["evicted"]
    writer = ClientTransactions(KafkaBrokers({"bootstrap_servers": servers}), f"client-{topic}")
    try:
        await writer.write([OutgoingRecord(topic, b"1", partition=0)])
        between.lose(END_TXN)
        with pytest.raises(AttributeError):  # fails after the first record was sent
            await writer.write([OutgoingRecord(topic, b"2", partition=0), None])
        await writer.write([OutgoingRecord(topic, b"3", partition=0)])
        await between.deliver()
    finally:
        await writer.close()
    assert set(between.ended.values()) == {1}
    assert await read_all(broker, topic) == [b"1", b"3"]
