"""Helpers for the client's tests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from ringfaust.client import Message, RingConsumer, RingProducer
from ringfaust.client.connection import Connection
from ringfaust.client.outgoing import SendOptions
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application

DEADLINE_S = 60
PARTITIONS = 2
ADDRESSES = ("q.many.durable", "q.many.copies", "q.many.silent")
_numbers = itertools.count()


class App(Protocol):
    """What the tests need of the application."""

    @property
    def inputs(self) -> Sequence[str]:
        """The topics of its routes."""

    @property
    def servers(self) -> str:
        """Where it is."""

    @property
    def worker_config(self) -> Any:
        """Has its name."""


def queues_of(name: str) -> dict[str, Any]:
    """The queues: a header of `to` names the queue, `keyed` has a queue per key."""
    return {
        "routes": [
            {"topic": f"to-{name}", "queue": "q.{header:ringfaust-queue}"},
            {"topic": f"keyed-{name}", "queue": "ring.{key}"},
        ],
        "queues": {
            "q.#": {},
            "ring.*": {},
            "q.short.#": {"consumer_timeout": 4_000},
            "q.one.#": {"max_active_consumers": 1},
            "q.once.#": {"dedup_window": 600_000},
            "q.full.#": {"max_messages": 1, "when_full": "reject_newest"},
        },
        "addresses": {address: {"retroactive_count": 2} for address in ADDRESSES},
        "settings": {"q.many.#": {"consumer_timeout": 2_000}},
    }


def new_application(folder: Path, broker: EmbeddedBroker, **settings: object) -> Application:
    """Create topics and configuration."""
    application = Application(
        folder / "app", broker.bootstrap_servers, queues_of(folder.name), partitions=PARTITIONS,
        session_timeout_ms=6_000, **settings,
    )  # fmt: skip
    application.create_topics()
    return application


class ClientHarness:
    """The application as one test uses it, with queues of its own."""

    def __init__(self, app: App, name: str) -> None:
        self.app = app
        self.to, self.keyed, *_ = app.inputs
        self._leaf = f"{name}.{next(_numbers)}"
        self.queue = self.a_queue("any")

    def a_queue(self, kind: str) -> str:
        """Return a queue's name; `short`, `one`, `once` and `full` have special settings."""
        return f"q.{kind}.{self._leaf}"

    @property
    def where(self) -> dict[str, Any]:
        """Options that connect to the application."""
        return {
            "bootstrap_servers": self.app.servers,
            "application": self.app.worker_config.application,
        }

    def consumer(self, queue: str = "", **options: Any) -> RingConsumer:
        return RingConsumer(queue or self.queue, **{**self.where, "heartbeat_ms": 500, **options})

    def producer(self, **options: Any) -> RingProducer:
        return RingProducer(**self.where, **options)

    async def send(self, *ids: str, queue: str = "", **options: Any) -> None:
        """Send a message for each id, in order."""
        async with self.producer() as producer:
            for each in ids:
                # From one partition, so that repartitioning keeps the order.
                fields: dict[str, Any] = {**self.for_queue(queue), **options}
                fields.update(id=each, partition=0)
                await producer.send(self.to, f"value of {each}", **fields)

    def for_queue(self, queue: str = "") -> SendOptions:
        """Return the options of a message to a queue."""
        return {"queue": (queue or self.queue).removeprefix("q.")}

    async def listing(self, queue: str = "", key: str = "") -> dict[str, Any]:
        """Return what a queue holds; with `key`, the queue that is named after it."""
        async with self.connection() as connection:
            return await self._listing(connection, queue, key)

    async def counts(self, queue: str = "", key: str = "", **expected: int) -> Mapping[str, int]:
        """Wait until the counts of a queue are as expected, and return them."""
        async with self.connection() as connection, asyncio.timeout(DEADLINE_S):
            while True:
                listing = await self._listing(connection, queue, key)
                counts: dict[str, int] = listing["counts"]
                if expected.items() <= counts.items():
                    return counts
                await asyncio.sleep(0.05)

    async def time_out(self, consumer: RingConsumer, timeout_ms: int = 1_000) -> None:
        """Lower the timeout of the consumer's queue below the interval of its heartbeats.

        The consumer learns of it too late: with the answer to its next heartbeat.
        """
        settings = {"consumer_timeout": timeout_ms}
        async with self.connection() as connection:
            command = {"type": "configure", "queue": consumer.queue, "settings": settings}
            await connection.request(consumer.partition, command)

    async def _listing(self, connection: Connection, queue: str, key: str) -> dict[str, Any]:
        name = queue or (f"ring.{key}" if key else self.queue)
        partition = partition_of(key or name, len(connection.partitions))
        return dict(
            (await connection.request(partition, {"type": "list", "queue": name}))["answer"]
        )

    def queues_apart(self) -> list[str]:
        """Return two queues in different partitions."""
        names = [self.a_queue(f"apart{number}") for number in range(64)]
        by_partition = {partition_of(name, PARTITIONS): name for name in names}
        assert len(by_partition) == PARTITIONS
        return list(by_partition.values())

    def key_in_another_partition_than_its_queue(self) -> str:
        """Return a key whose partition is not that of the name of its queue."""
        keys = (f"k{number}-{self._leaf}".replace(".", "-") for number in itertools.count())
        return next(
            key
            for key in keys
            if partition_of(key, PARTITIONS) != partition_of(f"ring.{key}", PARTITIONS)
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        connection = Connection(self.where)  # type: ignore[arg-type]
        await connection.start()
        try:
            await connection.listen()
            yield connection
        finally:
            await connection.close()


async def take(consumer: RingConsumer, count: int) -> list[Message]:
    """Receive the next messages."""
    async with asyncio.timeout(DEADLINE_S):
        return [await consumer.receive() for _ in range(count)]


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]
