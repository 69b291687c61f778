"""Transactions of version 2, which Kafka 4 has: two requests each, and an epoch of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from aiokafka.errors import ProducerFenced

from ringfaust.kafka.offsets import group_offsets
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.transactional.writer import TransactionalWriter
from tests.broker.test_commit import new_producer, new_topics, packed, read_all

pytestmark = pytest.mark.kafka

ROLES = {"changelog": 1 << 20, "events": 1 << 20, "replies": 1 << 20}


async def new_writer(broker: EmbeddedBroker, name: str) -> TransactionalWriter:
    writer = TransactionalWriter({"bootstrap_servers": broker.bootstrap_servers}, name)
    await writer.start()
    return writer


def epoch(writer: TransactionalWriter) -> tuple[int, int]:
    transactions: Any = writer.producer._txn_manager
    return transactions.producer_id, transactions.producer_epoch


async def commit(writer: TransactionalWriter, topic: str, *values: bytes) -> None:
    async def produce() -> list[Any]:
        return [await writer.producer.send(topic, value, partition=0) for value in values]

    await writer.commit(produce)


async def test_a_commit_is_two_requests(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await new_topics(broker, **ROLES)
    sent: Counter[str] = Counter()
    producer = new_producer(broker.bootstrap_servers, names)
    await producer.start()

    async def committed(number: int) -> None:
        outputs = packed(producer, events=b"%d" % number, replies=b"%d" % number)
        await producer.commit(outputs, [(b"key", b"%d" % number)], {})

    await committed(0)  # the leader of a topic that is just created may refuse once
    await committed(1)  # the other writer's turn
    for writer in producer._writers:
        connections: Any = writer.producer.client
        once = connections.send.__self__

        async def counted(
            node_id: int, request: Any, send: Any = once._send, **options: Any
        ) -> Any:
            sent[type(request).__name__] += 1
            return await send(node_id, request, **options)

        monkeypatch.setattr(once, "_send", counted)
    for number in range(2, 6):
        await committed(number)
    await producer.stop()
    assert sent == {"Produce": 4, "EndTransaction": 4}
    for topic in names.values():
        assert await read_all(broker, topic) == [b"%d" % number for number in range(6)]


async def test_each_transaction_has_an_epoch_of_its_own(broker: EmbeddedBroker) -> None:
    names = await new_topics(broker, events=1 << 20)
    writer = await new_writer(broker, names["events"])
    epochs = [epoch(writer)]
    for number in range(3):
        await commit(writer, names["events"], b"%da" % number, b"%db" % number)
        epochs.append(epoch(writer))
    await writer.stop()
    first_id, first = epochs[0]
    assert epochs == [(first_id, first + number) for number in range(4)]
    assert len(await read_all(broker, names["events"])) == 6


async def test_a_zombie_cannot_write(broker: EmbeddedBroker) -> None:
    names = await new_topics(broker, events=1 << 20)
    zombie = await new_writer(broker, names["events"])
    await commit(zombie, names["events"], b"before")
    owner = await new_writer(broker, names["events"])
    with pytest.raises(ProducerFenced):
        await commit(zombie, names["events"], b"late")
    await commit(owner, names["events"], b"after")
    await zombie.stop()
    await owner.stop()
    assert await read_all(broker, names["events"]) == [b"before", b"after"]


async def test_a_zombie_cannot_end_what_it_has_written(broker: EmbeddedBroker) -> None:
    names = await new_topics(broker, events=1 << 20)
    zombie = await new_writer(broker, names["events"])
    owners: list[TransactionalWriter] = []

    async def produce_and_lose() -> list[Any]:
        sent = await zombie.producer.send(names["events"], b"open", partition=0)
        await sent
        owners.append(await new_writer(broker, names["events"]))
        return [sent]

    with pytest.raises(ProducerFenced):
        await zombie.commit(produce_and_lose)
    await commit(owners[0], names["events"], b"after")
    await zombie.stop()
    await owners[0].stop()
    assert await read_all(broker, names["events"]) == [b"after"]


async def test_an_aborted_transaction_is_not_read_and_another_follows(
    broker: EmbeddedBroker,
) -> None:
    names = await new_topics(broker, events=1 << 20)
    writer = await new_writer(broker, names["events"])
    await writer.producer.begin_transaction()
    await (await writer.producer.send(names["events"], b"aborted", partition=0))
    await writer.abort()
    await commit(writer, names["events"], b"committed")
    await writer.producer.begin_transaction()
    await writer.abort()  # empty
    await commit(writer, names["events"], b"more")
    await writer.stop()
    assert await read_all(broker, names["events"]) == [b"committed", b"more"]


async def test_offsets_are_committed_with_the_records_and_alone(broker: EmbeddedBroker) -> None:
    names = await new_topics(broker, **ROLES)
    producer = new_producer(broker.bootstrap_servers, names)
    await producer.start()
    await producer.commit(packed(producer, events=b"1"), [], {names["replies"]: 7})
    await producer.commit({}, [], {names["replies"]: 8})
    await producer.commit(packed(producer, events=b"2"), [], {names["replies"]: 9})
    await producer.stop()
    assert await read_all(broker, names["events"]) == [b"1", b"2"]
    client, replies = {"bootstrap_servers": broker.bootstrap_servers}, (names["replies"], 0)
    found = await group_offsets(client, names["changelog"], [replies])
    assert [each.offset for each in found.values()] == [9]
