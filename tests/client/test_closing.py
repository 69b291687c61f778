"""A client that is closed while calls are under way: they end, and nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from ringfaust.client import (
    Closed,
    OutcomeUnknown,
    RingConsumer,
    RingProducer,
    Session,
    SettleRefused,
)
from ringfaust.client.connection import ConnectOptions
from ringfaust.client.settling import QUEUED_ACKS
from ringfaust.client.transactions import ClientTransactions
from ringfaust.protocol.records import OutgoingRecord
from ringfaust.testing import MemoryBroker
from tests.client.test_settling import DEADLINE_S, Bench

RECORDS = [OutgoingRecord("orders", b"a")]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A consumer whose brokers are away."""
    made = Bench(credit=100_000)
    made.worker.accepts.clear()
    async with asyncio.timeout(DEADLINE_S):
        yield made
    await made.consumer._settles.close()


# --- settles -------------------------------------------------------------------------------------


async def test_an_ack_that_waits_for_room_ends(bench: Bench) -> None:
    messages = bench.messages(QUEUED_ACKS)
    for message in messages[:-1]:
        await message.ack()
    last = asyncio.create_task(messages[-1].ack())
    await asyncio.wait([last], timeout=0.05)
    await bench.consumer._settles.close()
    with pytest.raises(Closed):
        await last


@pytest.mark.parametrize("how", ["release", "flush", "confirm"])
async def test_a_settle_that_waits_for_the_brokers_ends(bench: Bench, how: str) -> None:
    """It is not cancelled: nobody has cancelled its task."""
    first, message = bench.messages(2)
    await first.ack()
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "release": message.release,
        "flush": bench.consumer.flush,
        "confirm": lambda: message.ack(confirm=True),
    }
    call = asyncio.ensure_future(calls[how]())
    await asyncio.wait([call], timeout=0.05)
    await bench.consumer._settles.close()
    with pytest.raises(Closed):
        await call


async def test_an_ack_that_would_not_be_written_any_more_is_refused(bench: Bench) -> None:
    first, second = bench.messages(2)
    await first.ack()
    closing = asyncio.create_task(bench.consumer.close())
    await asyncio.sleep(0)
    with pytest.raises(Closed):
        await second.ack()
    bench.worker.accepts.set()
    await closing
    assert bench.worker.settled() == [("ack_many", [1])]


async def test_a_flush_does_not_wait_for_what_is_acked_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may fail, and then has no answer."""
    first, second = bench.messages(2)
    await first.ack()
    flushing = asyncio.create_task(bench.consumer.flush())
    await asyncio.sleep(0)
    await second.ack()
    write = bench.worker.write_command

    async def write_one(partition: int, raw: bytes) -> None:
        await write(partition, raw)
        bench.worker.accepts.clear()

    monkeypatch.setattr(bench.worker, "write_command", write_one)
    bench.worker.accepts.set()
    assert await flushing == []


# --- transactions --------------------------------------------------------------------------------


class Writer:
    """A writer whose commit waits until it may end."""

    may_be_committed = False

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.is_open = False

    async def start(self) -> None:
        self.is_open = True

    async def stop(self) -> None:
        self.is_open = False

    async def abort(self) -> None:
        """As with brokers that are away."""
        raise TimeoutError

    async def send(self, _: object) -> list[Any]:
        """Its commit sends nothing."""
        return []

    async def commit(self, _: object) -> list[Any]:
        self.begun.set()
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return []


class Brokers:
    """Makes these writers."""

    def __init__(self) -> None:
        self.writers: list[Writer] = []

    def writer(self, _: str) -> Writer:
        self.writers.append(Writer())
        return self.writers[-1]

    async def made(self, count: int) -> Writer:
        """Wait until there are so many; return the last."""
        while len(self.writers) < count:
            await asyncio.sleep(0)
        return self.writers[-1]


async def test_a_transaction_that_has_begun_is_written_and_one_that_waits_is_refused() -> None:
    brokers = Brokers()
    transactions = ClientTransactions(brokers, "id")  # type: ignore[arg-type]
    first, second = (asyncio.create_task(transactions.write(RECORDS)) for _ in range(2))
    writer = await brokers.made(1)
    await writer.begun.wait()
    closing = asyncio.create_task(transactions.close())
    await asyncio.sleep(0)
    writer.may_end.set()
    await closing
    assert await first == []
    with pytest.raises(Closed, match="nothing takes effect"):
        await second
    assert [each.is_open for each in brokers.writers] == [False]


async def test_a_transaction_can_be_cancelled_while_the_brokers_are_away() -> None:
    brokers = Brokers()
    transactions = ClientTransactions(brokers, "id")  # type: ignore[arg-type]
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await transactions.write(RECORDS)
    assert [each.is_open for each in brokers.writers] == [False]


async def test_after_a_record_that_the_brokers_refuse_another_writer_goes_on() -> None:
    """They would refuse all that the first one sends to that partition: its numbers have a gap."""
    brokers = Brokers()
    transactions = ClientTransactions(brokers, "id")  # type: ignore[arg-type]
    writing = asyncio.create_task(transactions.write(RECORDS))
    first = await brokers.made(1)
    first.error = KafkaError("the record is too large")
    first.may_end.set()
    with pytest.raises(KafkaError):
        await writing
    again = asyncio.create_task(transactions.write(RECORDS))
    (await brokers.made(2)).may_end.set()
    assert await again == []
    assert not first.is_open
    await transactions.close()


@pytest.mark.parametrize("then", ["settle", "close"])
async def test_what_a_failed_writer_may_have_left_open_is_ended(then: str) -> None:
    """Until it ends, no worker reads what is behind it. Another writer that starts ends it."""
    brokers = Brokers()
    transactions = ClientTransactions(brokers, "id")  # type: ignore[arg-type]
    writing = asyncio.create_task(transactions.write(RECORDS))
    writer = await brokers.made(1)
    await writer.begun.wait()
    writer.may_be_committed, writer.error = True, KafkaError("the answer is lost")
    writer.may_end.set()
    with pytest.raises(OutcomeUnknown):
        await writing
    await getattr(transactions, then)()
    assert len(brokers.writers) == 2
    await transactions.close()
    assert not any(each.is_open for each in brokers.writers)


async def test_a_closed_producer_or_session_sends_nothing(
    memory: MemoryBroker, where: ConnectOptions
) -> None:
    async with RingProducer(**where) as producer:
        await producer.send("orders", "a")
    with pytest.raises(Closed):
        async with producer.transaction():
            await producer.send("orders", "b")
    async with Session(**where) as session:
        await session.send("orders", "c")
        await session.commit()
    with pytest.raises(Closed):
        await session.send("orders", "d")
    assert memory.counts("orders").added == 2


async def test_a_session_commits_nothing_of_a_consumer_that_was_closed(
    memory: MemoryBroker, where: ConnectOptions
) -> None:
    """Its message has gone back, so what was made of it would be made twice."""
    async with RingProducer(**where) as producer:
        await producer.send("orders", "a")
    async with Session(**where) as session:
        orders = await session.consumer("orders")
        message = await orders.receive()
        await session.send("invoices", "for a")
        await message.ack()
        await orders.close()
        with pytest.raises(SettleRefused, match="was closed or timed out"):
            await session.commit()
        await session.rollback()
    assert (memory.counts("orders").ready, memory.counts("invoices").added) == (1, 0)


async def test_a_session_that_is_cancelled_while_it_closes_closes_all(
    memory: MemoryBroker, where: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(**where)
    await session.start()
    consumers = [await session.consumer(queue) for queue in ("orders", "invoices")]
    closes = asyncio.Event()

    async def stuck() -> None:
        closes.set()
        await asyncio.Event().wait()

    for each in consumers:
        monkeypatch.setattr(each, "_write_acks", stuck)
    closing = asyncio.create_task(session.close())
    await closes.wait()
    closing.cancel()
    monkeypatch.undo()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert all(each._attachment._reader is None for each in consumers)
    assert session.connection._producer is None


# --- a producer whose brokers are away -----------------------------------------------------------


async def test_a_send_ends_and_nothing_is_sent_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ringfaust.client.brokers.CLOSE_TIMEOUT_S", 0.05)
    producer = RingProducer()
    kafka: Any = producer._connection.brokers.producer(acks="all")
    asked = asyncio.Event()

    async def is_away(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def knows(_: str) -> set[int]:
        return {0}

    kafka._txn_manager.set_pid_and_epoch(1, 0)
    monkeypatch.setattr(kafka.client, "send", is_away)
    monkeypatch.setattr(kafka.client, "_wait_on_metadata", knows)
    monkeypatch.setattr(kafka, "_partition", lambda *_: 0)
    monkeypatch.setattr(kafka.client.cluster, "leader_for_partition", lambda _: 0)
    before = asyncio.all_tasks()
    await kafka._sender.start()
    producer._connection._producer = kafka
    producer._connection.topics._known.add("orders")
    producer._is_routed = False
    sending = asyncio.create_task(producer.send("orders", "a"))
    await asked.wait()
    queued = asyncio.create_task(producer.send("orders", "b"))
    await asyncio.wait([queued], timeout=0.05)
    async with asyncio.timeout(DEADLINE_S):
        await producer.close()
        for each in (sending, queued):
            with pytest.raises(Closed):
                await each
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "unsent records are dropped" in caplog.text


async def test_a_consumer_that_was_not_started_has_nothing_to_flush() -> None:
    with pytest.raises(Closed):
        await RingConsumer("orders").flush()
