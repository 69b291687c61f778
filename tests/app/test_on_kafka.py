"""The same promises on a real worker and broker; tests/app/test_handling.py has their details."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ringfaust.app import Context, RingApp
from ringfaust.faststream import TestRingBroker
from ringfaust.protocol.dead import DeadFilter
from ringfaust.protocol.records import Role
from ringfaust.redrive.reader import dead_reader
from ringfaust.supervisor import on_signal
from ringfaust.testing.broker import EmbeddedBroker
from tests.app.shop import DEADLINE_S, Gate, Order, PaymentDownError, ThreadGate, until
from tests.app.test_faststream_tools import Shop
from tests.chaos.harness import Application
from tests.client.harness import ClientHarness, new_application, take

pytestmark = pytest.mark.kafka
EGGS = {"item": "eggs", "count": 12}


@pytest.fixture(scope="module")
def worker(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    application = new_application(tmp_path_factory.mktemp("handlers"), broker)
    application.new_worker()
    yield application
    application.end()


@pytest.fixture
def shop(worker: Application, request: pytest.FixtureRequest) -> ClientHarness:
    return ClientHarness(worker, request.node.name.replace("[", "-").rstrip("]"))


def new_app(shop: ClientHarness, **options: Any) -> RingApp:
    where = shop.where
    return RingApp(where.pop("application"), **where, **options)


async def send(shop: ClientHarness, *values: Any, queue: str = "") -> None:
    async with shop.producer() as producer:
        for number, value in enumerate(values):
            options = {**shop.for_queue(queue), "id": f"m{number}", "partition": 0}
            await producer.send(shop.to, value, **options)


async def dead_reasons(shop: ClientHarness) -> dict[str, tuple[str, str]]:
    """Reason and text of the queue's dead messages, by id."""
    client = {"bootstrap_servers": shop.app.servers}
    topic = f"{shop.where['application']}.{Role.DEAD}"
    async with dead_reader(client, topic) as reader:
        found = await reader.latest(DeadFilter(queue=shop.queue), 100)
    return {each.id: (each.reason, each.said("ringfaust-text")) for each in found}


async def test_handlers_ack_retry_and_send_to_the_dead_topic(shop: ClientHarness) -> None:
    app, attempts = new_app(shop), []

    @app.subscriber(shop.queue, concurrency=4, retries={PaymentDownError: 200})
    async def handle(order: Order, context: Context) -> None:
        if order.item == "retried":
            attempts.append(context.message.attempt)
            if len(attempts) < 3:
                raise PaymentDownError
        if order.item == "broken":
            raise LookupError("no such item")

    values = [EGGS, {**EGGS, "item": "retried"}, {**EGGS, "item": "broken"}, b"no JSON"]
    async with app:
        await send(shop, *values)
        await shop.counts(acked=2, dead=2, messages=0)
    assert attempts == [1, 2, 3]
    reasons = await dead_reasons(shop)
    assert reasons["m2"] == ("rejected", "LookupError: no such item")
    assert reasons["m3"][0] == "rejected"
    assert reasons["m3"][1].startswith("body: Invalid JSON")


async def test_used_up_attempts_make_a_message_dead(shop: ClientHarness) -> None:
    app = new_app(shop)

    @app.subscriber(shop.queue, retries={PaymentDownError: None})
    def handle(order: Order) -> None:
        raise PaymentDownError

    async with app:
        await send(shop, EGGS)
        await shop.counts(dead=1, messages=0)
        (health,) = app.health().subscribers
    assert health.retried == 10
    assert (await dead_reasons(shop))["m0"][0] == "undeliverable"


async def test_concurrency_bounds_what_is_held(shop: ClientHarness) -> None:
    app, gate = new_app(shop), Gate()

    @app.subscriber(shop.queue, concurrency=3)
    async def handle(order: Order) -> None:
        await gate.wait(order)

    async with app:
        await send(shop, *[EGGS] * 8)
        await shop.counts(added=8)
        await gate.has(3)
        counts = await shop.counts(delivering=3)
        assert counts["ready"] == 5
        gate.opened.set()
        await shop.counts(acked=8)
    assert gate.most == 3


async def test_a_handler_that_takes_longer_than_the_timeout_keeps_its_message(
    shop: ClientHarness,
) -> None:
    """A second consumer with the same timeout says nothing, and shows that it has passed."""
    app, thread = new_app(shop), ThreadGate()

    @app.subscriber(shop.queue, heartbeat_ms=300)
    def handle(order: Order) -> None:
        thread.wait()

    async with app:
        await send(shop, EGGS)
        await asyncio.to_thread(thread.entered.wait, DEADLINE_S)
        async with shop.consumer(heartbeat_ms=600_000, credit=1) as silent:
            await send(shop, EGGS)
            await take(silent, 1)
            await shop.time_out(silent)
            counts = await shop.counts(delivering=1, ready=1)
            assert counts["acked"] == 0
            thread.opened.set()
            await shop.counts(acked=2, messages=0)
    assert app.health().subscribers == ()


@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_a_sigterm_returns_what_has_not_finished_in_time(
    shop: ClientHarness, is_coroutine: bool
) -> None:
    app, gate, thread, done = new_app(shop, grace_s=0.2), Gate(), ThreadGate(), []

    async def coroutine(order: Order) -> None:
        if order.item == "quick":
            await until(lambda: stopping)
            done.append(order.item)
        else:
            await gate.wait(order)

    def function(order: Order) -> None:
        if order.item == "quick":
            asyncio.run(until(lambda: stopping))
            done.append(order.item)
        else:
            thread.wait()

    stopping: list[bool] = []

    def stop() -> None:
        stopping.append(True)
        app.stop()

    app.subscriber(shop.queue, concurrency=2)(coroutine if is_coroutine else function)
    await send(shop, {**EGGS, "item": "quick"}, EGGS)
    on_signal(stop)
    try:
        running = asyncio.create_task(app.run())
        await shop.counts(delivering=2)
        await until(lambda: gate.waiting or thread.entered.is_set())
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            await running
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)
            signal.signal(each, signal.default_int_handler)
        thread.opened.set()
    assert done == ["quick"]
    await shop.counts(acked=1, ready=1)
    async with shop.consumer() as other:
        (again,) = await take(other, 1)
        assert (again.id, again.attempt, again.redelivered) == ("m1", 1, True)
        await again.ack()


async def test_a_consumer_reads_bodies_and_waits_for_a_while(shop: ClientHarness) -> None:
    def deserializer(raw: bytes) -> int:
        return int(raw)

    await send(shop, "7", "x")
    async with shop.consumer(deserializer=deserializer) as consumer:
        message = await consumer.receive(timeout_ms=DEADLINE_S * 1000)
        assert message is not None
        assert message.body == 7
        await message.ack()
        (unreadable,) = await take(consumer, 1)
        with pytest.raises(ValueError, match="invalid literal"):
            _ = unreadable.body
        await unreadable.reject("no number")
        assert await consumer.receive(timeout_ms=50) is None
    await shop.counts(acked=1, dead=1)


async def test_faststream_delivers_settles_and_keeps_the_dead(shop: ClientHarness) -> None:
    where = shop.where
    app = Shop(where.pop("application"), **where)
    invoices = shop.a_queue("short")
    charge = app.subscribe(shop.queue, shop.to, **shop.for_queue(invoices))
    async with TestRingBroker(app.broker, with_real=True) as real:
        await real.publish(EGGS, shop.to, **shop.for_queue())
        await charge.wait_call(timeout=DEADLINE_S)
        await real.publish({**EGGS, "item": "gold"}, shop.to, **shop.for_queue())
        await shop.counts(acked=1, dead=1, messages=0)
        await shop.counts(invoices, ready=1)
