"""A handler runs in the span of its message."""

from __future__ import annotations

from opentelemetry import trace

from ringfaust.app import RingApp
from ringfaust.testing.pytest_plugin import RunApp
from tests.app.shop import QUEUES, Order
from tests.client.test_spans import Exported, exported

__all__ = ["exported"]  # the fixture


async def test_what_a_handler_does_is_in_the_trace_of_its_message(
    ring_app: RunApp, exported: Exported
) -> None:
    app = RingApp("shop")

    @app.subscriber("orders")
    def handle(order: Order) -> None:
        with trace.get_tracer("test").start_as_current_span("charge"):
            raise LookupError("no such card")

    async with ring_app(app, QUEUES) as shop:
        await shop.send("orders", {"item": "eggs", "count": 12})
        await shop.settled()
    process, charge = exported["process orders"], exported["charge"]
    assert charge.parent.span_id == process.context.span_id
    assert process.context.trace_id == exported["send orders"].context.trace_id
    assert not process.status.is_ok
    assert [each.attributes["exception.type"] for each in process.events] == ["LookupError"]
    assert exported["settle orders"].attributes["ringfaust.settle"] == "reject"
