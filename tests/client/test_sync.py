"""The client without asyncio, on a real worker and broker."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.client import Admin as AsyncAdmin
from ringfaust.client import Closed, Refused, SettleRefused
from ringfaust.client.sync import Admin, RingConsumer, RingProducer, Session
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


def test_an_admin_without_asyncio_has_every_method_of_the_other() -> None:
    assert {name for name in vars(AsyncAdmin) if not name.startswith("_")} <= {*dir(Admin)}
    assert Admin.purge.__doc__ == AsyncAdmin.purge.__doc__


def test_an_admin_without_asyncio(harness: ClientHarness) -> None:
    asyncio.run(harness.send("a", "b"))
    asyncio.run(harness.counts(ready=2))
    with Admin(**harness.where) as admin:
        assert harness.queue in [each.queue for each in admin.queues()]
        assert [each.id for each in admin.browse(harness.queue)] == ["a", "b"]
        assert [each.id for each in admin.browse(harness.queue, selector="JMSPriority = 9")] == []
        admin.configure(harness.queue, {"ring_size": 7})
        admin.purge(harness.queue)
        found = admin.queue(harness.queue)
        assert (found.settings["ring_size"], found.counts["evicted"]) == (7, 2)
        with pytest.raises(Refused, match="unknown_queue"):
            admin.pause("nobody")
    with pytest.raises(Closed):
        admin.queues()
