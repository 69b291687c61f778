"""What a handler does decides what happens to its message. On a `MemoryBroker`."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest

from ringfaust.app import CallNext, Context, RingApp
from ringfaust.client import Admin, BadArgument, ClientError, Refused, RingConsumer
from ringfaust.client.options import SubscriberOptions
from ringfaust.testing.memory.running import RunningApp
from ringfaust.testing.pytest_plugin import RunApp
from tests.app.shop import QUEUES, Gate, Order, PaymentDownError, ThreadGate, unlogged, until

ORDER = {"item": "eggs", "count": 12}


def reasons(shop: RunningApp) -> list[tuple[str, str, str]]:
    """Id, reason and text of the dead messages."""
    return [(each.id, each.reason, each.said("ringfaust-text")) for each in shop.broker.dead()]


async def test_a_message_is_acked_when_its_handler_returns(ring_app: RunApp) -> None:
    app, gate, seen = RingApp("shop"), Gate(), []

    @app.subscriber("orders")
    async def handle(order: Order) -> None:
        await gate.wait(order)
        seen.append(order)

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await gate.has(1)
        assert shop.broker.counts("orders").delivering == 1
        gate.opened.set()
        await shop.settled()
        assert shop.broker.counts("orders").acked == 1
    assert seen == [Order(item="eggs", count=12)]


async def test_a_plain_function_runs_in_a_thread_and_may_send(ring_app: RunApp) -> None:
    app, threads = RingApp("shop"), []

    @app.subscriber("orders")
    def handle(order: Order, context: Context) -> None:
        threads.append(threading.current_thread())
        context.send_blocking("invoices", {"for": context.message.id, "count": order.count})

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER, id="o1")
        await shop.settled()
        (invoice,) = shop.broker.records("invoices")
        assert invoice.value == b'{"for":"o1","count":12}'
    assert threads[0] is not threading.main_thread()


async def test_a_listed_exception_delivers_again_after_its_delay(ring_app: RunApp) -> None:
    app, attempts = RingApp("shop"), []

    @app.subscriber("orders", retries={PaymentDownError: 5_000, OSError: None})
    async def handle(order: Order, context: Context) -> None:
        attempts.append(context.message.attempt)
        if len(attempts) == 1:
            raise PaymentDownError
        if len(attempts) == 2:
            raise ConnectionResetError("a kind of OSError: as the queue says, at once")

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await shop.settled()
        assert (attempts, shop.broker.counts("orders").scheduled) == ([1], 1)
        shop.clock.advance(4.999)
        await shop.settled()
        assert attempts == [1]
        shop.clock.advance(0.001)
        await until(lambda: shop.broker.counts("orders").acked)
        (health,) = app.health().subscribers
        assert (health.acked, health.retried, health.dead) == (1, 2, 0)
    assert attempts == [1, 2, 3]


async def test_when_the_attempts_are_used_up_the_message_is_dead(
    ring_app: RunApp, caplog: pytest.LogCaptureFixture
) -> None:
    app = RingApp("shop")

    @app.subscriber("orders", retries={PaymentDownError: 1_000})
    async def handle(order: Order) -> None:
        raise PaymentDownError

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER, id="o1")
        for _ in range(3):
            await shop.settled()
            shop.clock.advance(1)
        await shop.settled()
        assert [(each.id, each.reason) for each in shop.broker.dead()] == [("o1", "undeliverable")]
    logged = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(logged) == 3
    for number, line in enumerate(logged, 1):  # the app does not know how many attempts are left
        assert f"attempt {number} failed" in line
        assert "unless its max_attempts are used up" in line


async def test_any_other_exception_sends_the_message_to_the_dead_topic(
    ring_app: RunApp, caplog: pytest.LogCaptureFixture
) -> None:
    app = RingApp("shop")

    @app.subscriber("orders", retries={PaymentDownError: 1_000})
    async def handle(order: Order) -> None:
        raise LookupError("no such item")

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER, id="o1")
        await shop.settled()
        assert reasons(shop) == [("o1", "rejected", "LookupError: no such item")]
    (logged,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert logged.exc_info is not None  # a mistake of the program's own: its author wants to see it


async def test_half_a_character_in_the_reason_kills_no_app(ring_app: RunApp) -> None:
    """A client cut an emoji in two, and JSON has an escape for the half that is left."""
    app = RingApp("shop")

    @app.subscriber("orders", deserializer=json.loads)
    async def handle(order: dict[str, str], context: Context) -> None:
        if context.message.id == "own":
            await context.message.reject(order["item"])
        else:
            raise LookupError(order["item"] * 2_000)

    with unlogged():
        async with ring_app(app, QUEUES) as shop:
            for name in ("own", "raised"):
                await shop.send("orders", b'{"item": "\\ud83d"}', id=name)
            await shop.settled()
            assert sorted(reasons(shop)) == [
                ("own", "rejected", "\\ud83d"),
                ("raised", "rejected", ("LookupError: " + "\\ud83d" * 2_000)[:2_000]),
            ]


async def test_a_subscriber_that_cannot_go_on_says_so(
    ring_app: RunApp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another program's `async with app` nobody else does."""
    app = RingApp("shop")

    @app.subscriber("orders")
    async def handle(order: Order) -> None:
        """Never called."""

    async def refuse(*_: Any) -> None:
        raise Refused("consumer_limit", "orders", "no more consumers")

    monkeypatch.setattr("ringfaust.client.RingConsumer.receive", refuse)
    async with ring_app(app, QUEUES):
        await until(lambda: not app.health().is_ok)
    assert "orders: no more messages are handled: consumer_limit 'orders'" in caplog.text


@dataclass
class Point:
    x: int


class Unread(NamedTuple):
    """A body that a handler with that annotation cannot read."""

    annotation: Any
    value: bytes
    text: str
    deserializer: Callable[[bytes], Any] | None = None


@pytest.mark.parametrize(
    "case",
    [
        Unread(Order, b'{"item": "eggs"}', "count: Field required"),
        Unread(Order, b"no JSON", "body: Invalid JSON: expected ident at line 1 column 2"),
        Unread(Order, b'{"item": 1, "count": "x"}', "(and 1 more)"),
        Unread(str, b"\xff", "body: UnicodeDecodeError: "),
        Unread(Point, b'{"x": "far"}', "x: Input should be a valid integer"),
        Unread(Any, b"", "body: ZeroDivisionError: division", lambda _: 1 / 0),
    ],
)
async def test_a_body_that_cannot_be_read_is_dead_with_its_reason_and_no_traceback(
    ring_app: RunApp, caplog: pytest.LogCaptureFixture, case: Unread
) -> None:
    app, called = RingApp("shop"), []

    async def handle(body: Any) -> None:
        called.append(body)

    handle.__annotations__ = {"body": case.annotation}
    app.subscriber("orders", deserializer=case.deserializer)(handle)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", case.value, id="o1")
        await shop.settled()
        ((message, reason, said),) = reasons(shop)
    assert (message, reason) == ("o1", "rejected")
    assert case.text in said
    assert not called
    (logged,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert logged.exc_info is None
    assert case.text in logged.getMessage()


@pytest.mark.parametrize(
    ("annotation", "deserializer", "value", "body"),
    [
        (None, None, b"\xff", b"\xff"),
        (bytes, None, b"\xff", b"\xff"),
        (str, None, "é".encode(), "é"),
        (dict[str, int], None, b'{"a": 1}', {"a": 1}),
        (Point, None, b'{"x": 1}', Point(1)),
        (None, bytes.upper, b"eggs", b"EGGS"),
        (Point, lambda raw: {"x": int(raw)}, b"7", Point(7)),
        (threading.Event, lambda raw: None, b"", None),
        (Order | None, None, None, None),
        (None, bytes.upper, None, None),
    ],
)
async def test_the_annotation_or_the_deserializer_says_how_a_body_is_read(
    ring_app: RunApp, annotation: Any, deserializer: Any, value: bytes | None, body: Any
) -> None:
    app, seen = RingApp("shop"), []

    async def handle(given: Any) -> None:
        seen.append(given)

    handle.__annotations__ = {} if annotation is None else {"given": annotation}
    app.subscriber("orders", deserializer=deserializer)(handle)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", value, key="k")
        await shop.settled()
    assert seen == [body]


@pytest.mark.parametrize("annotation", [Context, Context | None, Annotated[Context, "ours"]])
async def test_a_context_is_given_however_it_is_annotated(
    ring_app: RunApp, annotation: Any
) -> None:
    app, seen = RingApp("shop"), []

    async def handle(order: Order, context: Any = None) -> None:
        seen.append(type(context))

    handle.__annotations__["context"] = annotation
    app.subscriber("orders")(handle)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await shop.settled()
    assert seen == [Context]


@pytest.mark.parametrize(("options", "held"), [({}, 3), ({"credit": 5}, 5)])
async def test_concurrency_bounds_what_is_handled_and_what_is_held_unless_there_is_a_credit(
    options: SubscriberOptions, held: int, ring_app: RunApp
) -> None:
    app, gate = RingApp("shop"), Gate()
    app.subscriber("orders", concurrency=3, **options)(gate.wait)
    async with ring_app(app, QUEUES) as shop:
        for _ in range(8):
            await shop.send("orders", ORDER)
        await gate.has(3)
        counts = shop.broker.counts("orders")
        assert (counts.delivering, counts.ready) == (held, 8 - held)
        gate.opened.set()
        await shop.settled()
        assert shop.broker.counts("orders").acked == 8
    assert gate.most == 3


async def test_a_handler_that_takes_long_keeps_its_message(ring_app: RunApp) -> None:
    """Its queue detaches a consumer that is silent for 30 s."""
    app, gate = RingApp("shop"), Gate()
    app.subscriber("orders")(gate.wait)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await gate.has(1)
        shop.clock.advance(3_600)
        assert shop.broker.counts("orders").delivering == 1
        gate.opened.set()
        await shop.settled()
        assert shop.broker.counts("orders").acked == 1
    assert gate.most == 1


async def test_the_health_does_not_wait_for_a_handler(
    ring_app: RunApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise BadArgument("no more")

    app, gate = RingApp("shop"), Gate()
    app.subscriber("orders", heartbeat_ms=10)(gate.wait)
    monkeypatch.setattr("ringfaust.client.attachment.Attachment._send_heartbeat", refuse)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await gate.has(1)
        await until(lambda: not app.health().is_ok)
        assert gate.waiting
        gate.opened.set()


async def test_middlewares_run_around_the_handler_and_see_its_exception(ring_app: RunApp) -> None:
    app, steps = RingApp("shop"), []

    @app.middleware
    async def outer(context: Context, call_next: CallNext) -> None:
        steps.append("outer")
        try:
            await call_next()
        except LookupError as error:
            raise PaymentDownError from error

    @app.middleware
    async def inner(context: Context, call_next: CallNext) -> None:
        steps.append("inner")
        context.body.count += 1
        await call_next()

    @app.subscriber("orders", retries={PaymentDownError: 1_000})
    async def handle(order: Order) -> None:
        steps.append(f"{order.count}")
        raise LookupError

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await shop.settled()
        assert shop.broker.counts("orders").scheduled == 1
    assert steps == ["outer", "inner", "13"]


async def test_a_handler_may_settle_its_message_itself(ring_app: RunApp) -> None:
    app = RingApp("shop")

    @app.subscriber("orders")
    async def handle(order: Order, context: Context) -> None:
        await context.message.reject("sold out")
        if order.count > 1:
            raise LookupError("too late to matter")

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER, id="o1")
        await shop.send("orders", {**ORDER, "count": 1}, id="o2")
        await shop.settled()
        assert reasons(shop) == [("o1", "rejected", "sold out"), ("o2", "rejected", "sold out")]


@pytest.mark.parametrize("error", [SystemExit(1), StopIteration(), asyncio.CancelledError()])
@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_odd_exceptions_belong_to_their_message_too(
    ring_app: RunApp, error: BaseException, is_coroutine: bool
) -> None:
    app = RingApp("shop")

    async def coroutine(order: Order) -> None:
        raise error

    def function(order: Order) -> None:
        raise error

    app.subscriber("orders")(coroutine if is_coroutine else function)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await shop.settled()
        assert shop.broker.counts("orders").dead == 1


async def test_a_message_that_was_lost_meanwhile_is_handled_again_and_never_beside_itself(
    ring_app: RunApp, caplog: pytest.LogCaptureFixture
) -> None:
    app, gate, attempts = RingApp("shop"), Gate(), []

    @app.subscriber("orders", name="me", heartbeat_ms=100)
    async def handle(order: Order, context: Context) -> None:
        attempts.append(context.message.attempt)
        await gate.wait(order)

    async with ring_app(app, QUEUES) as shop, Admin(**app.options) as admin:
        await shop.send("orders", ORDER)
        await gate.has(1)
        await admin.close_consumer("orders", "me")  # counts no attempt
        assert shop.broker.counts("orders").ready == 1
        await until(lambda: shop.broker.counts("orders").delivering)  # it has attached again
        gate.opened.set()
        await shop.settled()
        assert shop.broker.counts("orders").acked == 1
    assert (attempts, gate.most) == ([1, 1], 1)
    assert "was handled and is delivered again: stale_delivery" in caplog.text


async def test_a_coroutine_does_not_wait_for_itself(ring_app: RunApp) -> None:
    app = RingApp("shop")

    @app.subscriber("orders")
    async def handle(order: Order, context: Context) -> None:
        context.send_blocking("invoices", "x")

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await shop.settled()
        ((_, _, text),) = reasons(shop)
    assert text.endswith("send_blocking is for plain functions; await send in a coroutine")


async def test_methods_and_decorated_functions_are_handlers_too(ring_app: RunApp) -> None:
    app = RingApp("shop")

    class Desk:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def take(self, order: Order, *, urgent: bool = False, **more: object) -> None:
            self.seen.append((order.item, urgent, more))

    async def bill(body: str, context: Context) -> None:
        desk.seen.append((body, context.message.queue))

    @functools.wraps(bill)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return bill(*args, **kwargs)

    desk = Desk()
    app.subscriber("orders")(desk.take)
    app.subscriber("invoices")(decorated)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await shop.settled()
        await shop.send("invoices", "paid")
        await shop.settled()
    assert desk.seen == [("eggs", False, {}), ("paid", "invoices")]


# --- stopping -----------------------------------------------------------------------------------


async def test_a_stop_finishes_what_has_begun_and_begins_nothing(ring_app: RunApp) -> None:
    app, gate, done = RingApp("shop"), Gate(), []

    @app.subscriber("orders", concurrency=2)
    async def handle(order: Order) -> None:
        await gate.wait(order)
        done.append(order)

    async with ring_app(app, QUEUES) as shop:
        for _ in range(5):
            await shop.send("orders", ORDER)
        await gate.has(2)
        closing = asyncio.create_task(app.close())
        await asyncio.sleep(0)
        gate.opened.set()
        await closing
        counts = shop.broker.counts("orders")
        assert (counts.acked, counts.ready, counts.delivering) == (2, 3, 0)
    assert len(done) == 2


@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_after_the_grace_time_what_has_not_finished_goes_back_and_counts_no_attempt(
    ring_app: RunApp, is_coroutine: bool
) -> None:
    app, gate, thread = RingApp("shop", grace_s=0.01), Gate(), ThreadGate()

    def function(order: Order) -> None:
        thread.wait()

    app.subscriber("orders")(gate.wait if is_coroutine else function)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER, id="o1")
        await until(lambda: gate.waiting or thread.entered.is_set())
        await app.close()
        assert shop.broker.counts("orders").ready == 1
        thread.opened.set()
        async with RingConsumer("orders", **app.options) as other:
            again = await other.receive()
            assert (again.id, again.attempt, again.redelivered) == ("o1", 1, True)


async def test_a_close_that_is_cancelled_detaches(ring_app: RunApp) -> None:
    """Otherwise its consumer stays attached and receives messages that nobody handles."""
    app, gate = RingApp("shop", grace_s=3_600), Gate()
    app.subscriber("orders")(gate.wait)
    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", ORDER)
        await gate.has(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await app.close()
        await shop.send("orders", ORDER)
        counts = shop.broker.counts("orders")
        assert (counts.ready, counts.delivering) == (2, 0)


async def test_a_second_stop_does_not_wait(ring_app: RunApp) -> None:
    app, gate = RingApp("shop", grace_s=3_600), Gate()
    app.subscriber("orders")(gate.wait)
    async with ring_app(app, QUEUES) as shop:
        await app.close()
        running = asyncio.create_task(app.run())
        await shop.send("orders", ORDER)
        await gate.has(1)
        app.stop()
        app.stop()
        async with asyncio.timeout(30):
            await running
        assert shop.broker.counts("orders").ready == 1


# --- mistakes -----------------------------------------------------------------------------------


async def test_a_queue_that_does_not_exist_ends_the_start(ring_app: RunApp) -> None:
    app = RingApp("shop")

    @app.subscriber("order")
    async def handle(order: Order) -> None:
        """Never called."""

    with pytest.raises(Refused, match="unknown_queue 'order'"):
        async with ring_app(app, QUEUES):
            pass
    assert not app.health().is_ok


async def test_an_application_needs_a_subscriber_and_starts_once(ring_app: RunApp) -> None:
    app = RingApp("shop")
    with pytest.raises(ClientError, match="no subscribers"):
        async with ring_app(app, QUEUES):
            pass

    @app.subscriber("orders")
    async def handle(order: Order) -> None:
        """Never called."""

    async with ring_app(app, QUEUES):
        with pytest.raises(ClientError, match="runs already"):
            await app.start()


def strange(order: Order, price: int) -> None:
    """Takes too much."""


def unknown(order: "Nobody") -> None:  # type: ignore[name-defined]  # noqa: F821, UP037
    """Its annotation does not exist."""


def event(order: threading.Event) -> None:
    """Takes what no JSON is."""


def yielding(order: Order) -> Iterator[None]:
    """Is never run by a call."""
    yield


async def yielding_later(order: Order) -> AsyncIterator[None]:
    """Neither is this one."""
    yield


@pytest.mark.parametrize(
    ("options", "function", "text"),
    [
        ({"concurrency": 0}, None, "concurrency must be 1 or more, not 0"),
        (
            {"concurrency": 3, "credit": 2},
            None,
            "credit must be 3 or more, like concurrency",
        ),
        ({"retries": {"OSError": 1}}, None, "retries: 'OSError' is not a class of exceptions"),
        ({"retries": {OSError: -1}}, None, "retries: the delay of OSError must be a whole number"),
        ({"retries": {OSError: 1500.0}}, None, "from 0 to 140737488355328, not 1500.0"),
        ({"retries": {OSError: (1 << 47) + 1}}, None, "not 140737488355329"),
        ({"heartbeat_ms": "5"}, None, "heartbeat_ms must be a whole number of 1 or more, not '5'"),
        ({"address": "prices"}, None, "either a queue or an address"),
        ({"heartbeat_ms": 0}, None, "heartbeat_ms must be a whole number of 1 or more, not 0"),
        ({}, strange, "parameter price is neither the first, which is the body, nor annotated"),
        ({}, lambda order, /: None, "parameter order must have a name to use"),
        ({}, print, "handler <built-in function print> is not a function or method"),
        ({}, functools.partial(strange), "is not a function or method; wrap it in one"),
        ({}, yielding, "handler yielding is a generator, whose body nobody would run"),
        ({}, yielding_later, "is a generator, whose body nobody would run; do not yield"),
        ({}, unknown, "name 'Nobody' is not defined in an annotation"),
        ({}, event, "cannot be read from JSON; give the subscriber a deserializer"),
    ],
)
def test_a_wrong_subscriber_is_refused_where_it_is_written(
    options: dict[str, Any], function: Any, text: str
) -> None:
    with pytest.raises(BadArgument) as refused:
        RingApp().subscriber("orders", **options)(function or print_order)
    assert text in str(refused.value)


def print_order(order: Order) -> None:
    """Right."""


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(TypeError, match="qos: no such option; see SubscriberOptions"):
        RingApp().subscriber("orders", qos=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="servers: no such option; see ConnectOptions"):
        RingApp("shop", servers="x")  # type: ignore[call-arg]
    with pytest.raises(BadArgument, match="grace_s must be 0 or more, not -1"):
        RingApp(grace_s=-1)
