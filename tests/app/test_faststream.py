"""`RingBroker` on a `MemoryBroker`: what FastStream's acknowledgement does to messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Context, Depends, FastStream
from faststream.exceptions import (
    AckMessage,
    FeatureNotSupportedException,
    IncorrectState,
    NackMessage,
    RejectMessage,
    StopConsume,
)
from faststream.specification import AsyncAPI

from ringfaust.client import Admin, BadArgument, RingConsumer, RingProducer
from ringfaust.client.options import SubscriberOptions
from ringfaust.faststream import RingBroker, RingMessage, RingResponse, RingRouter
from ringfaust.testing import MemoryBroker
from tests.app.shop import QUEUES, Gate, Order, PaymentDownError, unlogged, until

EGGS = {"item": "eggs", "count": 12}


@pytest.fixture
def memory() -> Iterator[MemoryBroker]:
    with MemoryBroker(QUEUES, application="shop") as memory:
        yield memory


@pytest.fixture
def broker(memory: MemoryBroker) -> RingBroker:
    return RingBroker("shop", bootstrap_servers=memory.bootstrap_servers)


@asynccontextmanager
async def started(broker: RingBroker) -> AsyncIterator[None]:
    async with broker:
        await broker.start()
        yield


def reasons(memory: MemoryBroker) -> list[str]:
    return [each.said("ringfaust-text") for each in memory.dead()]


async def test_a_handler_gets_a_model_and_its_return_value_is_published(
    memory: MemoryBroker, broker: RingBroker
) -> None:
    got = []

    @broker.subscriber("orders")
    @broker.publisher("invoices", priority=9, headers={"by": "shop"})
    async def charge(order: Order) -> Any:
        got.append(order)
        return RingResponse({"for": order.item}, ttl_ms=60_000)

    async with started(broker):
        sent = await broker.publish(EGGS, "orders", headers={"from": "web"}, correlation_id="c7")
        await memory.settled("orders")
    assert got == [Order(item="eggs", count=12)]
    assert sent == "orders/0/0"
    assert memory.counts("orders").acked == 1
    (invoice,) = memory.records("invoices")
    headers = dict(invoice.headers)
    assert invoice.value == b'{"for":"eggs"}'
    assert headers["by"] == b"shop"
    assert headers["correlation_id"] == b"c7"
    assert headers["content-type"] == b"application/json"
    assert headers["ringfaust-priority"] == b"9"
    assert headers["ringfaust-ttl-ms"] == b"60000"


async def test_what_another_producer_sent_is_read_without_a_content_type(
    memory: MemoryBroker, broker: RingBroker
) -> None:
    got: list[Any] = []

    @broker.subscriber("orders")
    async def take(body: Any, message: Annotated[RingMessage, Context("message")]) -> None:
        got.append((body, message.message_id, message.headers, message.raw_message.attempt))

    where = {"bootstrap_servers": memory.bootstrap_servers, "application": "shop"}
    async with started(broker), RingProducer(**where) as producer:
        await producer.send("orders", EGGS, id="m1", headers={"from": "web"})
        await producer.send("orders", b"\xff", id="m2")
        await memory.settled("orders")
    assert got == [(EGGS, "m1", {"from": "web"}, 1), (b"\xff", "m2", {}, 1)]


@pytest.mark.parametrize(
    ("policy", "counts", "calls"),
    [
        (None, {"dead": 1}, 1),
        (AckPolicy.REJECT_ON_ERROR, {"dead": 1}, 1),
        (AckPolicy.NACK_ON_ERROR, {"dead": 1}, 3),
        (AckPolicy.ACK, {"acked": 1}, 1),
        (AckPolicy.ACK_FIRST, {"acked": 1}, 1),
    ],
)
@pytest.mark.parametrize("error", [PaymentDownError("no answer"), asyncio.CancelledError()])
async def test_a_policy_says_what_happens_to_a_message_that_fails(
    memory: MemoryBroker, policy: AckPolicy | None, counts: dict[str, int], calls: int,
    error: BaseException,
) -> None:  # fmt: skip
    options: Any = {} if policy is None else {"ack_policy": policy}
    broker = RingBroker("shop", bootstrap_servers=memory.bootstrap_servers, **options)
    called = []

    @broker.subscriber("orders")
    async def fail(order: Order) -> None:
        called.append(order)
        raise error

    async with started(broker):
        await broker.publish(EGGS, "orders")
        await memory.settled("orders")
    found = memory.counts("orders")
    assert {name: getattr(found, name) for name in ("acked", "dead")} == {
        "acked": 0, "dead": 0, **counts
    }  # fmt: skip
    assert len(called) == calls
    if calls == 1 and counts == {"dead": 1}:
        (reason,) = reasons(memory)
        assert str(error) in reason and "Error" in reason


async def test_half_a_character_in_the_reason_leaves_no_message_held(
    memory: MemoryBroker, broker: RingBroker
) -> None:
    @broker.subscriber("orders")
    async def fail(order: dict[str, str]) -> None:
        raise LookupError(order["item"])

    where = {"bootstrap_servers": memory.bootstrap_servers, "application": "shop"}
    with unlogged():
        async with started(broker), RingProducer(**where) as producer:
            await producer.send("orders", b'{"item": "\\ud83d"}')
            await memory.settled("orders")
    assert reasons(memory) == ["LookupError: \\ud83d"]


async def test_a_body_that_does_not_fit_is_dead_with_the_field_as_the_reason(
    memory: MemoryBroker, broker: RingBroker
) -> None:
    @broker.subscriber("orders")
    async def never(order: Order) -> None:
        raise AssertionError(order)

    async with started(broker):
        await broker.publish({"item": "eggs"}, "orders")
        await memory.settled("orders")
    (reason,) = reasons(memory)
    assert "count" in reason


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AckMessage(), {"acked": 1}),
        (RejectMessage(text="sold out"), {"dead": 1}),
        (NackMessage(delay_ms=30_000), {"scheduled": 1}),
    ],
)
async def test_a_handler_settles_by_an_exception(
    memory: MemoryBroker, broker: RingBroker, error: Exception, expected: dict[str, int]
) -> None:
    @broker.subscriber("orders")
    async def settle(order: Order) -> None:
        raise error

    async with started(broker):
        await broker.publish(EGGS, "orders")
        await until(lambda: memory.counts("orders").messages == expected.get("scheduled", 0))
        await memory.settled("orders")
        found = memory.counts("orders")
    assert {name: getattr(found, name) for name in expected} == expected
    if "dead" in expected:
        assert reasons(memory) == ["sold out"]


async def test_a_delayed_message_comes_again_when_the_clock_says_so(
    memory: MemoryBroker, broker: RingBroker
) -> None:
    attempts = []

    @broker.subscriber("orders", ack_policy=AckPolicy.MANUAL)
    async def settle(order: Order, message: Annotated[RingMessage, Context("message")]) -> None:
        attempts.append(message.raw_message.attempt)
        if len(attempts) == 1:
            await message.nack(delay_ms=30_000)
        await message.ack()  # does nothing after the nack

    async with started(broker):
        await broker.publish(EGGS, "orders")
        await memory.settled("orders")
        assert attempts == [1]
        memory.clock.advance(30)
        await memory.settled("orders")
    assert attempts == [1, 2]
    assert memory.counts("orders").acked == 1


@pytest.mark.parametrize(("options", "held"), [({}, 3), ({"credit": 4}, 4)])
async def test_no_more_messages_are_held_than_handled_or_than_the_credit(
    options: SubscriberOptions, held: int, memory: MemoryBroker, broker: RingBroker
) -> None:
    gate = Gate()

    @broker.subscriber("orders", max_workers=3, **options)
    async def wait(order: Order) -> None:
        await gate.wait(order)

    async with started(broker):
        for _ in range(5):
            await broker.publish(EGGS, "orders")
        await gate.has(3)
        counts = memory.counts("orders")
        assert (counts.delivering, counts.ready) == (held, 5 - held)
        gate.opened.set()
        await memory.settled("orders")
    assert gate.most == 3


async def test_a_stop_finishes_what_has_begun_and_returns_the_rest(memory: MemoryBroker) -> None:
    broker = RingBroker("shop", bootstrap_servers=memory.bootstrap_servers, graceful_timeout=0.1)
    gate, done = Gate(), []

    @broker.subscriber("orders", max_workers=2)
    async def wait(order: Order) -> None:
        if order.item == "quick":
            await until(lambda: not subscriber.running)
            done.append(order.item)
        else:
            await gate.wait(order)

    (subscriber,) = broker.subscribers
    async with started(broker):
        await broker.publish({**EGGS, "item": "quick"}, "orders")
        await broker.publish(EGGS, "orders")
        await until(lambda: gate.waiting and memory.counts("orders").delivering == 2)
    counts = memory.counts("orders")
    assert done == ["quick"]
    assert (counts.acked, counts.ready, counts.delivering) == (1, 1, 0)
    async with started(broker):
        gate.opened.set()
        await memory.settled("orders")
    assert memory.counts("orders").acked == 2


async def test_a_stop_that_is_cancelled_detaches(memory: MemoryBroker, broker: RingBroker) -> None:
    gate = Gate()

    @broker.subscriber("orders")
    async def wait(order: Order) -> None:
        await gate.wait(order)

    async with started(broker):
        await broker.publish(EGGS, "orders")
        await gate.has(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await broker.stop()
        counts = memory.counts("orders")
        assert (counts.ready, counts.delivering) == (1, 0)


async def test_a_handler_can_stop_its_subscriber(memory: MemoryBroker, broker: RingBroker) -> None:
    @broker.subscriber("orders", ack_policy=AckPolicy.NACK_ON_ERROR)
    async def stop(order: Order) -> None:
        raise StopConsume

    (subscriber,) = broker.subscribers
    async with started(broker):
        assert await broker.ping()
        await broker.publish(EGGS, "orders")
        await until(lambda: not subscriber.running and memory.counts("orders").ready == 1)
        assert not await broker.ping()
    assert memory.counts("orders").ready == 1


async def test_a_start_that_fails_leaves_nothing_attached(
    memory: MemoryBroker, broker: RingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun = RingConsumer.start, []

    async def start_one(consumer: RingConsumer) -> None:
        begun.append(consumer)
        if len(begun) > 1:
            raise BadArgument("no more")
        await start(consumer)

    @broker.subscriber("orders")
    @broker.subscriber("orders")
    async def never(order: Order) -> None: ...

    monkeypatch.setattr(RingConsumer, "start", start_one)
    with pytest.raises(BadArgument, match="no more"):
        await FastStream(broker).run()
    assert [each.is_attached for each in begun] == [False, False]
    with pytest.raises(IncorrectState):
        await broker.publish(EGGS, "orders")


async def test_an_app_exits_when_its_consumer_cannot_go_on(
    memory: MemoryBroker, broker: RingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise BadArgument("no more")

    @broker.subscriber("orders")
    async def handle(order: Order) -> None: ...

    monkeypatch.setattr("ringfaust.client.RingConsumer.receive", refuse)
    async with asyncio.timeout(10):
        await FastStream(broker).run()


async def test_a_ping_does_not_wait_for_a_handler(
    memory: MemoryBroker, broker: RingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise BadArgument("no more")

    gate = Gate()

    @broker.subscriber("orders", heartbeat_ms=10)
    async def wait(order: Order) -> None:
        await gate.wait(order)

    monkeypatch.setattr("ringfaust.client.attachment.Attachment._send_heartbeat", refuse)
    async with started(broker):
        await broker.publish(EGGS, "orders")
        await gate.has(1)
        (subscriber,) = broker.subscribers
        await until(lambda: not subscriber.is_well)
        assert gate.waiting and not await broker.ping()
        gate.opened.set()


async def test_middlewares_dependencies_and_routers_work_as_elsewhere(
    memory: MemoryBroker,
) -> None:
    seen: list[Any] = []

    class Seen(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append(("in", msg.message_id))
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append(("out", cmd.destination))
            return await call_next(cmd)

    broker = RingBroker("shop", bootstrap_servers=memory.bootstrap_servers, middlewares=[Seen])
    router = RingRouter("or")

    @router.subscriber("ders")
    def plain(order: Order, of: Annotated[str, Depends(lambda: "the shop")]) -> None:
        seen.append((order.item, of))

    broker.include_router(router)
    async with started(broker):
        await broker.publish(EGGS, "orders")
        await memory.settled("orders")
    assert seen == [("out", "orders"), ("in", "orders/0/0"), ("eggs", "the shop")]


async def test_the_prefix_of_a_router_begins_the_name_of_an_address_too() -> None:
    route = {"topic": "news", "queue": "shop.news"}
    got = []
    with MemoryBroker({"routes": [route], "addresses": {"shop.news": {}}}) as memory:
        broker = RingBroker(bootstrap_servers=memory.bootstrap_servers)
        router = RingRouter("shop.")

        @router.subscriber(address="news")
        async def take(body: str) -> None:
            got.append(body)

        broker.include_router(router)
        async with started(broker):
            await broker.publish("eggs", "news")
            await memory.settled()
    assert got == ["eggs"]


async def test_a_program_can_take_messages_without_a_handler(
    memory: MemoryBroker, broker: RingBroker
) -> None:
    subscriber = broker.subscriber("orders")
    async with started(broker):
        await broker.publish(EGGS, "orders")
        message = await subscriber.get_one(timeout=10)
        assert message is not None
        assert await message.decode() == EGGS
        await message.ack()
        assert await subscriber.get_one(timeout=0.01) is None
        await broker.publish("tea", "orders")
        async for message in subscriber:
            assert await message.decode() == "tea"
            await message.reject("no eggs")
            break
    assert memory.counts("orders").acked == 1
    assert reasons(memory) == ["no eggs"]


async def test_tasks_that_take_messages_share_one_consumer(
    memory: MemoryBroker, broker: RingBroker
) -> None:
    """A second one would never be closed, and what it holds would be kept from all others."""
    subscriber = broker.subscriber("orders")
    async with started(broker), Admin(**broker.options) as admin:
        takes = [subscriber.get_one(timeout=0.01) for _ in range(3)]
        assert await asyncio.gather(*takes) == [None] * 3
        assert len((await admin.queue("orders")).consumers) == 1
        await broker.stop()
        assert (await admin.queue("orders")).consumers == ()


async def test_mistakes_are_said_where_they_are_made(broker: RingBroker) -> None:
    with pytest.raises(TypeError, match="nonsense: no such option; see ConnectOptions"):
        RingBroker("shop", nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="qos: no such option; see SubscriberOptions"):
        broker.subscriber("orders", qos=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="qos: no such option; see SendOptions"):
        broker.publisher("orders", qos=1)  # type: ignore[call-arg]
    with pytest.raises(BadArgument, match="max_workers must be 1 or more, not 0"):
        broker.subscriber("orders", max_workers=0)
    with pytest.raises(BadArgument, match="either a queue or an address"):
        broker.subscriber()
    with pytest.raises(IncorrectState, match="the broker is not connected"):
        await broker.publish("x", "orders")
    with pytest.raises(FeatureNotSupportedException, match="queues have no replies"):
        await broker.request("x", "orders")


def test_asyncapi_describes_queues_and_topics(broker: RingBroker) -> None:
    @broker.subscriber("orders", title="Orders")
    @broker.publisher("invoices")
    async def charge(order: Order) -> str:
        """Charge an order."""
        return order.item

    document = AsyncAPI(broker, title="shop").to_specification().to_jsonable()
    channels = document["channels"]
    assert channels["Orders"]["address"] == "orders"
    assert channels["invoices:Publisher"]["address"] == "invoices"
    assert "Order" in document["components"]["schemas"]
