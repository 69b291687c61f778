"""FastStream's own test tools with a `RingBroker`; test_on_kafka.py has a run on a real worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from faststream import Context, FastStream, TestApp
from opentelemetry import trace
from pydantic import ValidationError

from ringfaust.client import BadArgument
from ringfaust.faststream import RingBroker, RingMessage, TestRingBroker
from ringfaust.testing import MemoryBroker
from tests.app.shop import DEADLINE_S, QUEUES, Order, PaymentDownError
from tests.client.test_documents import ROOT, blocks
from tests.client.test_spans import Exported, exported

__all__ = ["exported"]  # the fixture
EGGS = {"item": "eggs", "count": 12}
Settled = dict[str, str]


class Shop:
    """An application as a user would write it."""

    def __init__(self, application: str = "shop", **options: Any) -> None:
        self.broker = RingBroker(application, **options)
        self.app = FastStream(self.broker)
        self.messages: list[RingMessage] = []

    def subscribe(self, source: str = "orders", topic: str = "invoices", **options: Any) -> Any:
        self.invoices = self.broker.publisher(topic, **options)

        @self.broker.subscriber(source)
        @self.invoices
        async def charge(
            order: Order, message: Annotated[RingMessage, Context("message")]
        ) -> dict[str, str]:
            self.messages.append(message)
            if order.item == "gold":
                raise PaymentDownError("no answer")
            with trace.get_tracer("test").start_as_current_span("charge"):
                return {"for": order.item}

        return charge


async def test_published_messages_reach_handlers_and_mocks_without_kafka() -> None:
    shop = Shop()
    charge = shop.subscribe()
    async with TestRingBroker(shop.broker) as test:
        sent = await test.publish(EGGS, "orders", priority=7, id="m1", properties={"vip": True})
        charge.mock.assert_called_once_with(EGGS)
        shop.invoices.mock.assert_called_once_with({"for": "eggs"})
        assert await test.publish("nobody reads it", "other") == "other/0/3"
    (message,) = shop.messages
    assert sent == message.message_id == "m1"
    assert message.committed == "ACKED"
    raw = message.raw_message
    assert (raw.queue, raw.priority, raw.attempt, raw.redelivered) == ("orders", 7, 1, False)
    assert raw.properties == {"vip": True}
    assert raw.headers[0][0] == "content-type"


async def test_errors_of_handlers_and_bodies_reach_the_test() -> None:
    shop = Shop()
    shop.subscribe()
    async with TestRingBroker(shop.broker) as test:
        with pytest.raises(PaymentDownError):
            await test.publish({**EGGS, "item": "gold"}, "orders")
        with pytest.raises(ValidationError, match="count"):
            await test.publish({"item": "eggs"}, "orders")
        with pytest.raises(BadArgument, match="priority"):
            await test.publish(EGGS, "orders", priority=10)
    (message,) = shop.messages
    assert message.committed == "REJECTED"


async def test_a_queue_gives_a_message_to_one_of_its_subscribers() -> None:
    shop, got = Shop(), []
    for _ in range(2):

        @shop.broker.subscriber("orders")
        async def handle(order: Order) -> None:
            got.append(order)

    async with TestRingBroker(shop.broker) as test:
        await test.publish(EGGS, "orders")
    assert len(got) == 1


async def test_a_test_app_runs_it_without_kafka() -> None:
    shop = Shop()
    charge = shop.subscribe()
    async with TestRingBroker(shop.broker) as test, TestApp(shop.app):
        await test.publish(EGGS, "orders")
        charge.mock.assert_called_once_with(EGGS)


async def test_a_handler_runs_in_the_trace_of_its_message(exported: Exported) -> None:
    with MemoryBroker(QUEUES, application="shop") as memory:
        shop = Shop(bootstrap_servers=memory.bootstrap_servers)
        charge = shop.subscribe()
        async with TestRingBroker(shop.broker, with_real=True) as real:
            await real.publish(EGGS, "orders")
            await charge.wait_call(timeout=DEADLINE_S)
            await memory.settled("orders")
    process, charged = exported["process orders"], exported["charge"]
    assert charged.parent.span_id == process.context.span_id
    assert process.context.trace_id == exported["send orders"].context.trace_id


def test_the_page_runs_as_written(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "faststream.md").read_text()
    for block in blocks(page, "python"):
        name = block.partition("\n")[0].removeprefix("# ") if block.startswith("# ") else ""
        with (tmp_path / (name or "shop.py")).open("a") as file:
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path,
        check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
