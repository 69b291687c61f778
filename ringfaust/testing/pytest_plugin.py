"""The pytest plugin: the fixture `ring_app` runs an app without Kafka.

pytest loads it wherever ringfaust is installed, so it imports the rest when it is used.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ringfaust.testing.memory.running import RunningApp

RunApp = Callable[..., "AbstractAsyncContextManager[RunningApp]"]
"""What the fixture returns; see `ring_app`."""


@pytest.fixture
def ring_app() -> RunApp:
    """Run a `RingApp` on a `MemoryBroker` for an `async with` block.

    ::

        async def test_an_order_is_charged(ring_app):
            async with ring_app(app, "queues.yaml") as shop:
                await shop.send("orders", {"total": 5})
                await shop.settled()
                assert shop.broker.counts("orders").acked == 1

    It takes the app, and what `MemoryBroker` takes: queues, `partitions`, `topics`.
    """
    from ringfaust.testing.memory.running import running

    return running
