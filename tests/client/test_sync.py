"""The client without asyncio, on a real worker and broker."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.client import Closed, SettleRefused
from ringfaust.client.sync import RingConsumer, RingProducer, Session
from tests.client.harness import ClientHarness

pytestmark = pytest.mark.kafka


def test_produce_consume_and_settle_without_asyncio(harness: ClientHarness) -> None:
    with RingProducer(**harness.where) as producer:
        for name in "abc":
            producer.send(harness.to, name, id=name, partition=0, **harness.for_queue())
        with producer.transaction():
            producer.send(harness.to, "d", id="d", partition=0, **harness.for_queue())
        with pytest.raises(ArithmeticError), producer.transaction():
            producer.send(harness.to, "e", id="e", **harness.for_queue())
            raise ArithmeticError
    seen = []
    with RingConsumer(harness.queue, **harness.where) as consumer:
        assert consumer.partition >= 0
        for message in consumer:
            seen.append((message.id, message.value))
            if message.id == "b":
                message.reject("no", confirm=True)
            else:
                message.ack(confirm=True)
            if message.id == "d":
                break
        with pytest.raises(SettleRefused):
            message.release()
        assert consumer.receive(timeout_ms=50) is None
        consumer.add_credit(1)
        consumer.recover()
    assert seen == [(name, name.encode()) for name in "abcd"]
    counts = asyncio.run(harness.counts(acked=3, dead=1))
    assert counts["messages"] == 0
    with pytest.raises(Closed):
        consumer.receive()


def test_a_session_without_asyncio(harness: ClientHarness) -> None:
    asyncio.run(harness.send("a", "b"))
    target = harness.a_queue("target")
    with Session(**harness.where) as session:
        consumer = session.consumer(harness.queue, credit=1)
        for message in consumer:
            if not message.redelivered:
                message.ack()
                session.rollback()
                continue
            session.send(harness.to, message.value, **harness.for_queue(target))
            message.ack()
            assert session.commit(confirm=True) == []
            if message.id == "b":
                break
    asyncio.run(harness.counts(acked=2, messages=0))
    asyncio.run(harness.counts(target, added=2))
