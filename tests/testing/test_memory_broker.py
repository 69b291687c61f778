"""`MemoryBroker`: its clock, its worker, and who counts as alive. tests/client has the clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from ringfaust.client import (
    Admin,
    BadArgument,
    Closed,
    RingConsumer,
    RingProducer,
    Session,
    StatusReader,
    Unrouted,
)
from ringfaust.client.sync import RingConsumer as BlockingConsumer
from ringfaust.client.trace import trace
from ringfaust.config import ConfigError
from ringfaust.errors import RingfaustError
from ringfaust.testing import MemoryBroker
from ringfaust.testing.memory import broker as memory

QUEUES = {
    "routes": [
        {"topic": "orders", "queue": "orders"},
        {"topic": "flights", "queue": "departures.{key}"},
        {"topic": "jobs", "queue": "jobs"},
    ],
    "queues": {
        "orders": {"consumer_timeout_ms": 30_000},
        "departures.*": {"ring_size": 2},
        "jobs": {"max_messages": 1, "when_full": "block"},
    },
}


@pytest.fixture
def shop() -> Iterator[MemoryBroker]:
    with MemoryBroker(QUEUES, partitions=3) as found:
        yield found


async def send(shop: MemoryBroker, topic: str, *ids: str, **options: object) -> None:
    async with RingProducer(bootstrap_servers=shop.bootstrap_servers) as producer:
        for each in ids:
            await producer.send(topic, "x", id=each, **options)  # type: ignore[arg-type]


def consumer(shop: MemoryBroker, queue: str, **options: object) -> RingConsumer:
    return RingConsumer(queue, bootstrap_servers=shop.bootstrap_servers, **options)  # type: ignore[arg-type]


# --- the clock ----------------------------------------------------------------------------------


async def test_what_is_due_happens_at_its_time_and_in_its_order(shop: MemoryBroker) -> None:
    began_ms = shop.clock.now_ms
    assert abs(began_ms - time.time() * 1000) < 3_600_000
    await send(shop, "orders", "late", delay_ms=90_000)
    await send(shop, "orders", "soon", delay_ms=60_000)
    await send(shop, "orders", "gone", ttl_ms=59_999)
    assert shop.counts("orders").expired == 0
    shop.clock.advance(59.999)
    counts = shop.counts("orders")
    assert (counts.scheduled, counts.ready, counts.expired) == (2, 0, 1)
    shop.clock.advance(3_600)
    assert shop.clock.now_ms == began_ms + 59_999 + 3_600_000
    async with consumer(shop, "orders") as orders:
        first, second = await orders.receive(), await orders.receive()
        assert [first.id, second.id] == ["soon", "late"]
    (gone,) = shop.dead()
    assert (gone.id, gone.reason, gone.time_ms) == ("gone", "expired", began_ms + 59_999)


def test_time_never_goes_back(shop: MemoryBroker) -> None:
    with pytest.raises(ValueError, match="seconds must be 0 or more, not -1"):
        shop.clock.advance(-1)


async def test_time_alone_detaches_no_consumer_whose_program_runs(shop: MemoryBroker) -> None:
    await send(shop, "orders", "a")
    await send(shop, "orders", "later", delay_ms=86_399_000)
    async with consumer(shop, "orders") as orders:
        message = await orders.receive()
        said = len(shop.records("ringfaust.control"))
        shop.clock.advance(86_400)
        assert len(shop.records("ringfaust.control")) - said < 10  # days cost as much as seconds
        await message.ack(confirm=True)
        assert (await orders.receive()).id == "later"
    assert shop.clock.now_ms - shop.records("ringfaust.dispatched")[-1].timestamp == 1_000
    assert shop.counts("orders").acked == 1


async def test_a_consumer_whose_program_has_ended_times_out(shop: MemoryBroker) -> None:
    await send(shop, "orders", "a")

    async def dying() -> None:
        orders = consumer(shop, "orders")
        await orders.start()
        await orders.receive()

    program = threading.Thread(target=lambda: asyncio.run(dying()))
    program.start()
    await asyncio.to_thread(program.join)
    shop.clock.advance(29)
    assert shop.counts("orders").delivering == 1
    shop.clock.advance(1)
    assert shop.counts("orders").delivering == 0
    async with consumer(shop, "orders") as orders:
        assert (await orders.receive()).redelivered


# --- queues -------------------------------------------------------------------------------------


async def test_rings_per_key_are_where_they_are_in_kafka(shop: MemoryBroker) -> None:
    for key in ("UA", "DL", "AA"):
        await send(shop, "flights", *(f"{key}{number}" for number in range(4)), key=key)
    assert [shop.counts(f"departures.{key}").ready for key in ("UA", "DL", "AA")] == [2, 2, 2]
    evicted = [each.id for each in shop.evicted() if each.queue == "departures.UA"]
    assert evicted == ["UA0", "UA1"]
    partitions = {each.partition for each in shop.records("flights")}
    assert len(partitions) > 1


async def test_a_full_queue_blocks_its_topic_until_there_is_room(shop: MemoryBroker) -> None:
    await send(shop, "jobs", "a", "b", "c")
    assert shop.counts("jobs").added == 1
    async with consumer(shop, "jobs") as jobs:
        seen = []
        for _ in range(3):
            message = await jobs.receive()
            seen.append(message.id)
            await message.ack()
    assert seen == ["a", "b", "c"]
    assert shop.counts("jobs").acked == 3


async def test_a_session_writes_to_a_topic_that_no_route_reads() -> None:
    with MemoryBroker(topics=["invoices"]) as shop:
        await send(shop, "orders", "a")
        async with Session(bootstrap_servers=shop.bootstrap_servers) as session:
            orders = await session.consumer("orders")
            message = await orders.receive()
            await session.send("invoices", message.value)
            await message.ack()
            assert shop.records("invoices") == []
            await session.commit(confirm=True)
        assert [each.value for each in shop.records("invoices")] == [b"x"]
        assert shop.counts("orders").acked == 1


async def test_a_message_can_be_traced(shop: MemoryBroker) -> None:
    await send(shop, "flights", *"abc", key="UA")
    found = await trace("a", since_ms=0, bootstrap_servers=shop.bootstrap_servers)
    (life,) = found.lifecycles
    assert [each["event"] for each in life.events] == ["added", "evicted"]


async def test_the_status_follows_the_queues_and_the_clock(shop: MemoryBroker) -> None:
    async with StatusReader(bootstrap_servers=shop.bootstrap_servers) as status:
        assert sorted(each.queue for each in status.queues()) == ["jobs", "orders"]
        assert status.partitions == 3
        seen = status.revision
        await send(shop, "orders", "a", "b", delay_ms=1)
        await send(shop, "flights", *"abc", key="UA")
        shop.clock.advance(60)
        while status.queue("orders") is None or not status.queue("orders").counts.ready:
            seen = await status.changed(seen)
        orders, departures = status.queue("orders"), status.queue("departures.UA")
        assert (orders.counts.ready, orders.oldest_ms) == (2, shop.clock.now_ms - 59_999 - 1)
        assert (departures.counts.ready, departures.counts.evicted) == (2, 1)
        (worker,) = status.workers()
        assert worker.is_ready
        assert worker.partitions == (0, 1, 2)
        assert not worker.is_stale(shop.clock.now_ms)


async def test_it_is_settled_when_nothing_is_ready_or_held(
    shop: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(shop, "orders", "a")
    await send(shop, "orders", "later", delay_ms=1)
    await send(shop, "flights", "b", key="UA")

    async def work() -> None:
        async with consumer(shop, "orders") as orders:
            message = await orders.receive()
            await message.ack()
            await orders.flush()

    working = asyncio.create_task(work())
    await shop.settled("orders")
    assert shop.counts("orders").acked == 1
    await working
    monkeypatch.setattr(memory, "SETTLE_TIMEOUT_S", 0.01)
    with pytest.raises(AssertionError, match="departures.UA has 1 ready and 0 held messages"):
        await shop.settled()


# --- clients ------------------------------------------------------------------------------------


async def test_a_name_that_is_misspelled_is_no_empty_queue(shop: MemoryBroker) -> None:
    assert shop.counts("departures.UA").added == 0  # a pattern declares it
    for name in ("oders", "departures"):
        with pytest.raises(BadArgument, match=f"no queue '{name}'; (did you mean 'orders'|known)"):
            shop.counts(name)
        with pytest.raises(BadArgument, match=f"no queue '{name}'"):
            await shop.settled("orders", name)
    with pytest.raises(BadArgument, match=r"no queue 'departures\.\*'; known: jobs, orders"):
        await shop.settled("departures.*")
    with pytest.raises(BadArgument, match="no topic 'flight'; did you mean 'flights'"):
        shop.records("flight")
    async with Admin(bootstrap_servers=shop.bootstrap_servers) as admin:
        await send(shop, "orders", "a")
        await admin.apply({"routes": [], "queues": {"jobs": {}}})
        await admin.delete_queue("orders")
    assert shop.counts("orders").added == 0  # there was one


async def test_programs_in_several_threads_share_it(shop: MemoryBroker) -> None:
    ids = [f"m{number}" for number in range(50)]
    seen = []

    def work() -> None:
        servers = shop.bootstrap_servers
        with BlockingConsumer("orders", credit=1, bootstrap_servers=servers) as orders:
            while (message := orders.receive(timeout_ms=10_000)) is not None:
                if message.value == b"end":
                    message.ack(confirm=True)
                    return
                seen.append(message.id)
                message.ack(confirm=True)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for each in workers:
        each.start()
    await send(shop, "orders", *ids, partition=0)
    async with RingProducer(bootstrap_servers=shop.bootstrap_servers) as producer:
        for _ in workers:
            await producer.send("orders", "end", partition=0)
    for each in workers:
        await asyncio.to_thread(each.join)
    assert sorted(seen) == sorted(ids)


async def test_an_unknown_topic_is_refused(shop: MemoryBroker) -> None:
    with pytest.raises(Unrouted, match=r"topic order is read by no route.*did you mean orders\?"):
        await send(shop, "order", "a")


async def test_a_closed_consumer_wakes_who_waits(shop: MemoryBroker) -> None:
    async with consumer(shop, "orders") as orders:
        waiting = asyncio.create_task(orders.receive())
        await asyncio.sleep(0)
        await orders.close()
        with pytest.raises(Closed):
            await waiting


def test_a_broker_that_is_not_open_is_named(shop: MemoryBroker) -> None:
    for servers in ("memory://", f"{shop.bootstrap_servers}0"):
        with pytest.raises(BadArgument, match=f"{servers} names no open MemoryBroker"):
            RingProducer(bootstrap_servers=servers)


def test_wrong_queues_are_refused_with_every_mistake() -> None:
    wrong = {"queues": {"orders": {"ring_sise": 5, "max_attempts": "x"}}}
    with pytest.raises(ConfigError) as refused:
        MemoryBroker(wrong)
    assert len(refused.value.faults) == 2
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        MemoryBroker("nowhere.yaml")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"partitions": 0}, "partitions: .* greater than or equal to 1"),
        ({"partitions": "3"}, "partitions: .* valid integer"),
        ({"application": "a b"}, "application: 'a b' .*"),
        ({"topics": "invoices"}, r"topics: .* list, not 'invoices'"),
    ],
)
def test_other_wrong_arguments_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(RingfaustError, match=text):
        MemoryBroker(**wrong)


async def test_a_record_that_a_producer_refuses_is_refused_here_too(shop: MemoryBroker) -> None:
    async with RingProducer(bootstrap_servers=shop.bootstrap_servers) as producer:
        with pytest.raises(MessageSizeTooLargeError, match="max_request_size"):
            await producer.send("orders", "x" * (1 << 20 | 1))
    assert shop.records("orders") == []
