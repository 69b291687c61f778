"""An app that runs on a `MemoryBroker`, for one test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from ringfaust.app import RingApp
from ringfaust.client import RingProducer
from ringfaust.client.outgoing import SendOptions, Value
from ringfaust.testing.memory.broker import Clock, MemoryBroker


@dataclass
class RunningApp:
    """An app, and the broker that it runs on."""

    app: RingApp
    broker: MemoryBroker
    producer: RingProducer

    @property
    def clock(self) -> Clock:
        """The clock, which the test advances."""
        return self.broker.clock

    async def send(self, topic: str, value: Value, **options: Unpack[SendOptions]) -> str:
        """Send a message; see `RingProducer.send`."""
        return await self.producer.send(topic, value, **options)

    async def settled(self) -> None:
        """Wait until no message of the app's queues is ready or held.

        Retries that wait for their time stay: advance the clock, and wait again.

        Raises:
            NotSettled: some still are after 10 s.
        """
        await self.broker.settled(*self.app.queues)


@asynccontextmanager
async def running(
    app: RingApp,
    queues: Path | str | Mapping[str, Any] | None = None,
    *,
    partitions: int = 1,
    topics: Sequence[str] = (),
) -> AsyncIterator[RunningApp]:
    """Run an app on a broker of its own; see `MemoryBroker` for the arguments."""
    options = app.options
    name = options["application"]
    with MemoryBroker(queues, application=name, partitions=partitions, topics=topics) as broker:
        app.options = {**options, "bootstrap_servers": broker.bootstrap_servers}
        try:
            async with app, RingProducer(**app.options) as producer:
                yield RunningApp(app, broker, producer)
        finally:
            app.options = options
