"""A producer on a real worker and broker: options of a message, transactions, invalid input."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from ringfaust.client import (
    BadArgument,
    ClientError,
    Closed,
    OutcomeUnknown,
    RingConsumer,
    RingProducer,
    Session,
    Unrouted,
)
from ringfaust.client.brokers import KafkaBrokers
from ringfaust.client.connection import Connection
from ringfaust.client.outgoing import OutgoingMessage
from ringfaust.client.transactions import ClientTransactions
from ringfaust.kafka.admin import connected_admin
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import OutgoingRecord
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.transactional.writer import TransactionalWriter
from tests.broker.proxy import END_TXN, Proxy
from tests.broker.slow import hear_before
from tests.client.harness import DEADLINE_S, ClientHarness

NOW_MS = time.time_ns() // 1_000_000


@pytest.mark.kafka
async def test_times_priorities_and_ids_reach_the_queue(harness: ClientHarness) -> None:
    options: list[dict[str, Any]] = [
        {"id": "low", "priority": 0},
        {"id": "high", "priority": 9},
        {"id": "late", "delay_ms": 600_000},
        {"id": "later", "deliver_at_ms": NOW_MS + 3_600_000},
        {"id": "gone", "expires_at_ms": NOW_MS - 1},
    ]
    async with harness.producer() as producer:
        for each in options:
            sent = await producer.send(harness.to, "x", partition=0, **harness.for_queue(), **each)
            assert sent == each["id"]
    await harness.counts(added=5, expired=1)
    held = await harness.listing()
    assert (held["ready"], held["scheduled"]) == (["high", "low"], ["late", "later"])


@pytest.mark.kafka
async def test_a_transaction_takes_effect_wholly_or_not_at_all(harness: ClientHarness) -> None:
    async with harness.producer() as producer:
        with pytest.raises(ArithmeticError):
            async with producer.transaction():
                await producer.send(harness.to, "no", **harness.for_queue())
                raise ArithmeticError
        async with producer.transaction():
            first = await producer.send(harness.to, "a", partition=0, **harness.for_queue())
            second = await producer.send(harness.to, "b", partition=0, **harness.for_queue())
            assert (await harness.listing())["counts"]["added"] == 0
            with pytest.raises(ClientError, match="is open"):
                async with producer.transaction():
                    pass
        await producer.send(harness.to, "c", id="c", partition=0, **harness.for_queue())
        await harness.counts(added=3)
        assert (await harness.listing())["ready"] == [first, second, "c"]
        async with producer.transaction():
            pass


@pytest.mark.kafka
async def test_a_transaction_that_fails_between_two_sends_has_no_effect(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next transaction succeeds."""
    kafka, name = {"bootstrap_servers": harness.app.servers}, f"transactions-{harness.queue}"
    transactions = ClientTransactions(KafkaBrokers(kafka), name)
    queue = ((h.QUEUE, harness.for_queue()["queue"].encode()),)
    records = [OutgoingRecord(topic, b"x", None, queue, 0) for topic in (harness.to, harness.keyed)]
    await transactions.write(records[:1])
    async with AIOKafkaProducer(**kafka, transactional_id=name):  # fences the producer
        assert isinstance(transactions._writer, TransactionalWriter)
        hear_before(transactions._writer.producer, harness.keyed, monkeypatch)
        with pytest.raises(KafkaError):
            await transactions.write(records)
    await transactions.write(records[:1])
    await transactions.close()
    await harness.counts(added=2)


@pytest.mark.kafka
async def test_what_brokers_refuse_keeps_out_nothing_that_follows(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a number, and they refuse what follows one that they do not have."""
    version_1 = AsyncMock(return_value=None)  # version 2 restarts the numbers in each transaction
    monkeypatch.setattr("ringfaust.transactional.writer.use_version_2", version_1)
    servers = broker.bootstrap_servers
    topic = NewTopic(f"small-{time.time_ns()}", 1, 1, topic_configs={"max.message.bytes": "1000"})
    async with connected_admin({"bootstrap_servers": servers}) as admin:
        await admin.create_topics([topic])
    async with RingProducer(bootstrap_servers=servers, any_topic=True) as producer:

        async def send(value: str, *, is_transaction: bool) -> None:
            async with producer.transaction() if is_transaction else nullcontext():
                await producer.send(topic.name, value)

        for is_transaction in (False, True):
            await send("small", is_transaction=is_transaction)
            with pytest.raises(MessageSizeTooLargeError):
                await send("large" * 300, is_transaction=is_transaction)
            await send("small", is_transaction=is_transaction)


@pytest.mark.kafka
async def test_refusals_are_reported_by_message_id(harness: ClientHarness) -> None:
    """R62: only its own messages, including those sent before it asked."""
    queue = harness.a_queue("full")
    async with harness.producer(watch_refusals=True) as producer, harness.producer() as other:
        await other.send(harness.to, "a", id="a", partition=0, **harness.for_queue(queue))
        await other.send(harness.to, "b", id="b", partition=0, **harness.for_queue(queue))
        sent = await producer.send(harness.to, "c", partition=0, **harness.for_queue(queue))
        await producer.send(harness.to, "d", id="d", partition=0, **harness.for_queue(queue))
        async with asyncio.timeout(DEADLINE_S):
            refusals = producer.refusals()
            refused = [await anext(refusals), await anext(refusals)]
    assert [(each.reason, each.about) for each in refused] == [
        ("queue_full", sent), ("queue_full", "d"),
    ]  # fmt: skip


@pytest.mark.kafka
async def test_a_message_that_is_sent_again_after_an_unknown_outcome_comes_in_once(
    harness: ClientHarness,
) -> None:
    """R119: the commit reaches the broker, but its answer does not reach the producer."""
    queue = harness.a_queue("once")
    proxy = Proxy(harness.app.servers)
    async with proxy.running() as servers:
        where = {**harness.where, "bootstrap_servers": servers}
        async with RingProducer(**where, watch_refusals=True) as producer:

            async def send(message_id: str) -> None:
                options = harness.for_queue(queue)
                async with producer.transaction():
                    await producer.send(harness.to, "x", id=message_id, partition=0, **options)

            proxy.lose(END_TXN)
            with pytest.raises(OutcomeUnknown):
                await send("order-1")
            await proxy.deliver()
            await send("order-1")
            await send("order-2")
            async with asyncio.timeout(DEADLINE_S):
                refused = await anext(producer.refusals())
    assert (refused.reason, refused.about) == ("duplicate", "order-1")
    counts = await harness.counts(queue, added=2)
    assert (counts["refused"], counts["dead"]) == (0, 0)
    assert (await harness.listing(queue))["ready"] == ["order-1", "order-2"]


@pytest.mark.kafka
async def test_a_producer_must_be_started(harness: ClientHarness) -> None:
    producer = harness.producer()
    with pytest.raises(Closed):
        await producer.send(harness.to, "x")
    async with producer:
        with pytest.raises(ClientError, match="watch_refusals=True"):
            await anext(producer.refusals())
    with pytest.raises(Closed):
        await producer.send(harness.to, "x")


# --- without a broker ---------------------------------------------------------------------------


def test_relative_times_count_from_the_send() -> None:
    sent = OutgoingMessage.of("t", "x", delay_ms=5_000, ttl_ms=60_000)
    for passed_ms, delay, ttl in ((0, b"5000", b"60000"), (4_000, b"1000", b"56000")):
        headers = dict(sent.after(passed_ms).headers)
        assert (headers[h.DELAY_MS], headers[h.TTL_MS]) == (delay, ttl)
    headers = dict(replace(sent, created_s=sent.created_s - 90).now().headers)
    assert (headers[h.DELAY_MS], headers[h.TTL_MS]) == (b"0", b"1")


def test_a_ttl_of_zero_never_expires() -> None:
    for ttl_ms in (0, -1):
        assert h.TTL_MS not in dict(OutgoingMessage.of("t", "x", ttl_ms=ttl_ms).after(0).headers)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"priority": 10}, "ringfaust-priority"),
        ({"priority": "high"}, "ringfaust-priority"),
        ({"id": "x" * 513}, "ringfaust-id"),
        ({"group": "x" * 250}, "ringfaust-group"),
        ({"delay_ms": 10**16}, "ringfaust-delay-ms"),
        ({"deliver_at_ms": 10**16}, "ringfaust-deliver-at-ms"),
        ({"expires_at_ms": 1.5}, "ringfaust-expires-at-ms"),
        ({"properties": {"size": [1]}}, "properties"),
        ({"properties": {"size": float("nan")}}, "properties"),
        ({"properties": {"size": object()}}, "properties"),
        ({"headers": {"ringfaust-id": "x"}}, "ringfaust-id is reserved"),
    ],
)
def test_an_invalid_message_is_refused_before_it_is_sent(options: Any, advice: str) -> None:
    with pytest.raises(BadArgument, match=advice):
        OutgoingMessage.of("t", "x", **options)


def test_a_message_needs_a_value_or_a_key() -> None:
    assert OutgoingMessage.of("t", None, key="k").record.value is None
    with pytest.raises(BadArgument, match="a value, or at least a key"):
        OutgoingMessage.of("t", None)


def test_unknown_options_are_reported() -> None:
    for kind in (RingProducer, Session, RingConsumer):
        with pytest.raises(TypeError, match="bootstrap_server: no such option"):
            kind(bootstrap_server="127.0.0.1:9092")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="pririty"):
        OutgoingMessage.of("t", "x", pririty=3)  # type: ignore[call-arg]


@pytest.mark.kafka
async def test_a_topic_that_no_route_reads_is_refused(harness: ClientHarness) -> None:
    async with harness.producer() as producer:
        await producer.send(harness.to, "x", partition=0, **harness.for_queue())
        await harness.counts(added=1)
        with pytest.raises(Unrouted) as refused:
            await producer.send(f"{harness.to}s", "x")
    said = str(refused.value)
    assert refused.value.routed == (harness.keyed, harness.to)
    assert f"topic {harness.to}s is read by no route of the application" in said
    assert f"Routed topics: {harness.keyed}, {harness.to}; did you mean {harness.to}?" in said


@pytest.mark.kafka
@pytest.mark.parametrize(
    "role", ["control", "dispatched", "evicted", "dead", "status", "changelog"]
)
async def test_a_topic_of_ringfaust_itself_is_refused(harness: ClientHarness, role: str) -> None:
    own = f"{harness.app.worker_config.application}.{role}"
    await harness.listing()
    async with harness.producer(any_topic=True) as producer, Session(**harness.where) as session:
        for send in (producer.send, session.send):
            with pytest.raises(
                Unrouted, match=f"topic {own} belongs to the application"
            ) as refused:
                await send(own, "x")
            assert refused.value.routed == (harness.keyed, harness.to)


@pytest.mark.kafka
async def test_the_brokers_are_asked_for_routes_once_for_a_topic(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    brokers = type(Connection(harness.where).brokers)
    ask = brokers.subscribed_topics

    async def counted(*args: Any) -> frozenset[str]:
        asked.append(args)
        return await ask(*args)

    monkeypatch.setattr(brokers, "subscribed_topics", counted)
    async with harness.producer() as producer:
        for _ in range(3):
            await producer.send(harness.to, "x", partition=0, **harness.for_queue())
    assert len(asked) == 1
