"""A send to a topic that does not exist fails at once, and says which topic."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError

from ringfaust.client import BadArgument, NoTopic, RingProducer, Session
from ringfaust.client import connection as connections
from ringfaust.client.connection import Connection
from ringfaust.protocol.records import OutgoingRecord
from ringfaust.testing.broker import EmbeddedBroker


class FakeProducer:
    """The part of aiokafka's producer that knows the topics."""

    def __init__(self, *answers: set[str] | Exception) -> None:
        self.client = self
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

    async def partitions_for(self, topic: str) -> set[int]:
        return {0, 1}


def connection(
    monkeypatch: pytest.MonkeyPatch, *answers: set[str] | Exception
) -> tuple[Connection, FakeProducer]:
    producer = FakeProducer(*answers)
    monkeypatch.setattr(Connection, "producer", producer)
    monkeypatch.setattr(connections, "_ASK_AGAIN_S", 0.0)
    return Connection({}), producer


async def test_a_topic_that_stays_away_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_NEW_TOPIC_S", 0.0)
    opened, _ = connection(monkeypatch, {"other"})
    with pytest.raises(NoTopic, match="there is no topic orders, or this client") as refused:
        await opened.check_topic("orders")
    assert refused.value.topic == "orders"


async def test_a_topic_that_was_just_created_is_waited_for_and_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, producer = connection(monkeypatch, set(), KafkaConnectionError(), {"orders"})
    await opened.check_topic("orders")
    await opened.check_topic("orders", 1)
    assert producer.asked == 3


async def test_a_partition_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, _ = connection(monkeypatch, {"orders"})
    with pytest.raises(BadArgument, match="topic orders has no partition 2"):
        await opened.check_topic("orders", 2)


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


async def test_a_session_refuses_it_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_NEW_TOPIC_S", 0.0)
    connection(monkeypatch, {"other"})
    with pytest.raises(NoTopic):
        await Session().send("orders", "x")


async def test_a_topic_that_exists_is_waited_for_however_long_the_brokers_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Kafka client says that there is no such topic when it cannot ask for 40 s."""
    opened, producer = connection(monkeypatch, KafkaConnectionError(), {"orders"})
    sent: list[str] = []

    async def send(topic: str, *_: object, **__: object) -> str:
        if not producer.asked:
            raise UnknownTopicOrPartitionError
        sent.append(topic)
        return topic

    monkeypatch.setattr(producer, "send_and_wait", send, raising=False)
    await opened.write(OutgoingRecord("orders", b"a"))
    assert (sent, producer.asked) == (["orders"], 2)
