"""The Kafka broker that ringfaust and its Kafka peers share, and what they need of it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.model import Load
from bench.processes import DEADLINE_S, Failed, Process, program
from ringfaust.java.jars import KAFKA, Bundle
from ringfaust.testing.broker import EmbeddedBroker

COLORS = 4
"""The values of the property that selectors test."""
WARM = 0.1
"""The share of messages that is not timed: processes start, connect and fill their rings."""
_POLL_S = 0.05
_HEAP = (
    "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
"""As in Kafka's own start scripts. Artemis has as much, and the collector of its scripts."""
_PROPERTIES = {
    # What a round wrote leaves the disk before the next one ends.
    "log.segment.delete.delay.ms": "1000",
}


class Growth(NamedTuple):
    """How fast topics grew after the warm-up."""

    per_second: float
    cpu_us: float
    """CPU time of the watched processes, per message."""


class Kafka:
    """A Kafka broker, a folder for logs and state, and the filled input topics."""

    def __init__(self, bundle: Bundle = KAFKA) -> None:
        self._broker = EmbeddedBroker(properties=_PROPERTIES, bundle=bundle, heap=_HEAP)
        self._folder = tempfile.TemporaryDirectory(prefix="ringfaust-bench-")
        self.folder = Path(self._folder.name)
        self._filled: dict[tuple[object, ...], str] = {}
        self._made = 0

    @property
    def servers(self) -> str:
        """The address for clients."""
        return self._broker.bootstrap_servers

    def __enter__(self) -> Self:
        self._broker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._broker.stop()
        self._folder.cleanup()

    def new_name(self, of: str) -> str:
        """A name that nothing else has."""
        self._made += 1
        return f"{of}-{self._made}"

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic."""

        async def create(admin: AIOKafkaAdminClient) -> None:
            settings = {
                "message.timestamp.type": "LogAppendTime"
            }  # as topics/producer.yaml recommends
            await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])

        self._administer(create)

    def drop(self, name: str) -> None:
        """Delete a topic, or all topics of an application."""

        async def drop(admin: AIOKafkaAdminClient) -> None:
            own = [
                topic
                for topic in await admin.list_topics()
                if topic == name or topic.startswith((f"{name}.", f"{name}-"))
            ]
            if own:
                await admin.delete_topics(own)

        self._administer(drop)

    def filled(self, load: Load) -> str:
        """Return a topic that holds the load's messages; all rounds and peers read the same one."""
        shape = (load.messages, load.body_bytes, load.rings, load.workers)
        if shape not in self._filled:
            for topic in self._filled.values():
                self.drop(topic)
            self._filled.clear()
            topic = self.new_name("input")
            self.create(topic, load.workers)
            with self.producer(load, topic) as producer:
                producer.wait()
            self._filled[shape] = topic
        return self._filled[shape]

    def producer(self, load: Load, topic: str, **more: object) -> Process:
        """Start a process that sends the load's messages to a topic, and ends."""
        options = {
            "servers": self.servers,
            "topic": topic,
            "messages": load.messages,
            "rate": load.rate,
            "body_bytes": load.body_bytes,
            "rings": load.rings,
            "partitions": load.workers,
            "priorities": load.priorities,
            "colors": COLORS if load.selector else 0,
            **more,
        }
        return program("producer", self.folder / "producer.log", **options)

    def end(self, topic: str) -> int:
        """The end offset of a topic's partition 0."""

        async def end() -> int:
            watcher = AIOKafkaConsumer(bootstrap_servers=self.servers)
            await watcher.start()
            try:
                tp = TopicPartition(topic, 0)
                return int((await watcher.end_offsets([tp]))[tp])
            finally:
                await watcher.stop()

        return asyncio.run(end())

    def growth(
        self, topics: Sequence[str], partitions: int, count: int, by: Sequence[Process]
    ) -> Growth:
        """Wait until the topics have `count` records together; their growth after the warm-up.

        The marker of each transaction counts as a record, as it does in all offsets.
        """
        return asyncio.run(self._growth(topics, partitions, count, by))

    async def _growth(
        self, topics: Sequence[str], partitions: int, count: int, by: Sequence[Process]
    ) -> Growth:
        tps = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
        watcher = AIOKafkaConsumer(bootstrap_servers=self.servers)
        await watcher.start()
        # If everything comes at once, there is no warm-up: it is timed from here.
        since, is_warm = (time.monotonic(), 0, _cpu_s(by)), False
        deadline = time.monotonic() + DEADLINE_S
        try:
            while time.monotonic() < deadline:
                end = sum((await watcher.end_offsets(tps)).values())
                now = time.monotonic()
                if end >= count:
                    seconds, messages = now - since[0], end - since[1]
                    return Growth(messages / seconds, (_cpu_s(by) - since[2]) / messages * 1e6)
                if not is_warm and end >= count * WARM:
                    since, is_warm = (now, end, _cpu_s(by)), True
                for process in by:
                    process.check()
                await asyncio.sleep(_POLL_S)
        finally:
            await watcher.stop()
        raise Failed(f"{topics} did not get its {count} records within {DEADLINE_S:.0f} s")

    def _administer(self, act: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
            await admin.start()
            try:
                await act(admin)
            finally:
                await admin.close()

        asyncio.run(run())


def _cpu_s(processes: Sequence[Process]) -> float:
    return sum(process.cpu_s() for process in processes)
