"""A send to a topic that does not exist fails at once, and says which topic."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError

from ringfaust.client import BadArgument, NoTopic, RingProducer, Session, known_topics
from ringfaust.client import connection as connections
from ringfaust.client.connection import Connection
from ringfaust.kafka.admin import connected_admin
from ringfaust.protocol.records import OutgoingRecord
from ringfaust.testing.broker import EmbeddedBroker


class FakeProducer:
    """The part of aiokafka's producer that knows the topics."""

    def __init__(self, *answers: set[str] | Exception) -> None:
        self.client = self.cluster = self
        self._answers = list(answers)
        self.asked = 0

    async def fetch_all_metadata(self) -> Any:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        self._topics = answer
        return self

    def topics(self) -> set[str]:
        return self._topics

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return None if self.asked else {0, 1}

    async def partitions_for(self, topic: str) -> set[int]:
        return {0, 1}


def connection(
    monkeypatch: pytest.MonkeyPatch, *answers: set[str] | Exception
) -> tuple[Connection, FakeProducer]:
    producer = FakeProducer(*answers)
    monkeypatch.setattr(Connection, "producer", producer)
    monkeypatch.setattr(known_topics, "_ASK_AGAIN_S", 0.0)
    return Connection({}), producer


async def test_a_topic_that_stays_away_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_topics, "_NEW_TOPIC_S", 0.0)
    opened, _ = connection(monkeypatch, {"other"})
    with pytest.raises(NoTopic, match="there is no topic orders, or this client") as refused:
        await opened.topics.check("orders")
    assert refused.value.topic == "orders"


async def test_a_topic_that_was_just_created_is_waited_for_and_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, producer = connection(monkeypatch, set(), KafkaConnectionError(), {"orders"})
    await opened.topics.check("orders")
    await opened.topics.check("orders", 1)
    assert producer.asked == 3


async def test_a_partition_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, _ = connection(monkeypatch, {"orders"})
    with pytest.raises(BadArgument, match="topic orders has no partition 2"):
        await opened.topics.check("orders", 2)


@pytest.mark.kafka
async def test_a_real_broker_is_asked_and_nothing_is_logged(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with RingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(NoTopic):
                await producer.send("no-such-topic", "x")
            with pytest.raises(NoTopic):
                async with producer.transaction():
                    await producer.send("no-such-topic", "x")
    assert not caplog.records


@pytest.mark.kafka
async def test_a_send_ends_if_a_real_topic_was_deleted(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LOOK_S", 0.1)
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    async with connected_admin(servers) as admin, RingProducer(**servers) as producer:
        await admin.create_topics([NewTopic("short-lived", 1, 1)])
        await producer.send("short-lived", "x")
        await admin.delete_topics(["short-lived"])
        with pytest.raises(NoTopic):
            await producer.send("short-lived", "x")


async def test_a_session_refuses_it_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_topics, "_NEW_TOPIC_S", 0.0)
    connection(monkeypatch, {"other"})
    with pytest.raises(NoTopic):
        await Session().send("orders", "x")


async def test_a_topic_that_exists_is_waited_for_however_long_the_brokers_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Kafka client says that there is no such topic when it cannot ask for 40 s."""
    opened, producer = connection(monkeypatch, KafkaConnectionError(), {"orders"})
    sent: list[str] = []

    async def send(topic: str, *_: object, **__: object) -> asyncio.Future[str]:
        if not producer.asked:
            raise UnknownTopicOrPartitionError
        sent.append(topic)
        stored = asyncio.get_running_loop().create_future()
        stored.set_result(topic)
        return stored

    monkeypatch.setattr(producer, "send", send, raising=False)
    await opened.write(OutgoingRecord("orders", b"a"))
    assert (sent, producer.asked) == (["orders"], 2)


async def test_a_record_whose_topic_is_deleted_before_it_is_stored_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Kafka client would wait for a leader for a day."""
    monkeypatch.setattr(connections, "_LOOK_S", 0.0)
    monkeypatch.setattr(known_topics, "_NEW_TOPIC_S", 0.0)
    opened, producer = connection(monkeypatch, {"orders"}, {"other"})
    waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def send(*_: object, **__: object) -> asyncio.Future[str]:
        return waiting

    monkeypatch.setattr(producer, "send", send, raising=False)
    await opened.topics.check("orders")
    with pytest.raises(NoTopic):
        await opened.write(OutgoingRecord("orders", b"a"))
    assert waiting.cancelled()
    with pytest.raises(NoTopic):
        await opened.topics.check("orders")


async def test_nobody_is_asked_while_the_brokers_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waiting send would fill the log."""
    monkeypatch.setattr(connections, "_LOOK_S", 0.0)
    opened, producer = connection(monkeypatch, KafkaConnectionError())
    waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def send(*_: object, **__: object) -> asyncio.Future[str]:
        return waiting

    monkeypatch.setattr(producer, "send", send, raising=False)
    writing = asyncio.create_task(opened.write(OutgoingRecord("orders", b"a")))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not (producer.asked or writing.done())
    waiting.set_result("stored")
    assert await writing == "stored"
