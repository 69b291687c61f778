"""What the tests of the client share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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


def new_application(folder: Path, broker: EmbeddedBroker, **settings: object) -> Application:
    """Topics and configuration: `to` names its queue, `keyed` makes a ring for each key."""
    queues = {
        "routes": [
            {"topic": f"to-{folder.name}", "queue": "q.{header:ringfaust-queue}"},
            {"topic": f"keyed-{folder.name}", "queue": "ring.{key}"},
        ],
        "queues": {
            "q.#": {},
            "ring.*": {},
            "q.short.#": {"consumer_timeout": 4_000},
            "q.one.#": {"max_active_consumers": 1},
            "q.full.#": {"max_messages": 1, "when_full": "reject_newest"},
        },
        "addresses": {address: {"retroactive_count": 2} for address in ADDRESSES},
        "settings": {"q.many.#": {"consumer_timeout": 2_000}},
    }
    application = Application(
        folder / "app", broker.bootstrap_servers, queues, partitions=PARTITIONS,
        session_timeout_ms=6_000, **settings,
    )  # fmt: skip
    application.create_topics()
    return application


class ClientHarness:
    """One test's own view of the application."""

    def __init__(self, app: Application, name: str) -> None:
        self.app = app
        self.to, self.keyed, *_ = app.inputs
        self._leaf = f"{name}.{next(_numbers)}"
        self.queue = self.a_queue("any")

    def a_queue(self, kind: str) -> str:
        """A queue's name; `short`, `one` and `full` are set apart."""
        return f"q.{kind}.{self._leaf}"

    @property
    def where(self) -> dict[str, Any]:
        """How to reach the application."""
        return {
            "bootstrap_servers": self.app.servers,
            "application": self.app.worker_config.application,
        }

    def consumer(self, queue: str = "", **options: Any) -> RingConsumer:
        return RingConsumer(queue or self.queue, **{**self.where, "heartbeat_ms": 500, **options})

    def producer(self, **options: Any) -> RingProducer:
        return RingProducer(**self.where, **options)

    async def send(self, *ids: str, queue: str = "", **options: Any) -> None:
        """A message for each id, in order."""
        async with self.producer() as producer:
            for each in ids:
                # From one partition, so that the hop keeps the order.
                fields: dict[str, Any] = {**self.for_queue(queue), **options}
                fields.update(id=each, partition=0)
                await producer.send(self.to, f"value of {each}", **fields)

    def for_queue(self, queue: str = "") -> SendOptions:
        """What a message to a queue has to say."""
        return {"queue": (queue or self.queue).removeprefix("q.")}

    async def listing(self, queue: str = "", key: str = "") -> dict[str, Any]:
        """What a queue holds; `key`: of the ring that is named after it."""
        async with self.connection() as connection:
            return await self._listing(connection, queue, key)

    async def counts(self, queue: str = "", key: str = "", **expected: int) -> Mapping[str, int]:
        """The counts of a queue, as soon as they are as expected."""
        async with self.connection() as connection, asyncio.timeout(DEADLINE_S):
            while True:
                listing = await self._listing(connection, queue, key)
                counts: dict[str, int] = listing["counts"]
                if expected.items() <= counts.items():
                    return counts
                await asyncio.sleep(0.05)

    async def _listing(self, connection: Connection, queue: str, key: str) -> dict[str, Any]:
        name = queue or (f"ring.{key}" if key else self.queue)
        home = partition_of(key or name, len(connection.partitions))
        return dict((await connection.request(home, {"type": "list", "queue": name}))["answer"])

    def queues_apart(self) -> list[str]:
        """Two queues in two partitions."""
        names = [self.a_queue(f"apart{number}") for number in range(64)]
        by_home = {partition_of(name, PARTITIONS): name for name in names}
        assert len(by_home) == PARTITIONS
        return list(by_home.values())

    def other_home_than_its_ring(self) -> str:
        """A key that goes to another partition than the name of its ring would."""
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
    """The next messages."""
    async with asyncio.timeout(DEADLINE_S):
        return [await consumer.receive() for _ in range(count)]


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]
