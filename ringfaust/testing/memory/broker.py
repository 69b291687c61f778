"""`MemoryBroker`: tests of programs that use the client, without Kafka."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ringfaust.client.brokers import MEMORY, Writer, end_in_memory, serve_in_memory
from ringfaust.client.errors import BadArgument
from ringfaust.config import QueuesConfig, WorkerConfig, load_queues
from ringfaust.config.documents import check, shipped
from ringfaust.core.model import Counts
from ringfaust.errors import suggestion
from ringfaust.protocol.dead import DeadMessage
from ringfaust.protocol.names import topic_name
from ringfaust.protocol.records import FetchedRecord, OutgoingRecord, Role
from ringfaust.testing.memory.clients import (
    MemoryClient,
    MemoryConsumer,
    MemoryProducer,
    MemoryWriter,
)
from ringfaust.testing.memory.topics import MemoryTopics
from ringfaust.testing.memory.worker import MemoryWorker
from ringfaust.times import wall_ms

SETTLE_TIMEOUT_S = 10.0
_numbers = itertools.count(1)


class NotSettled(AssertionError):
    """Messages were still ready or held when the time was over."""


class Clock:
    """The clock of a `MemoryBroker`: it begins at the present, and the test advances it."""

    def __init__(self, topics: MemoryTopics, worker: MemoryWorker) -> None:
        self._topics = topics
        self._worker = worker

    @property
    def now_ms(self) -> int:
        """In ms since 1970."""
        return self._topics.now_ms

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what becomes due at its time, in its order.

        The consumers of programs that run send their heartbeats meanwhile.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"seconds must be 0 or more, not {seconds}: time never goes back")
        topics = self._topics
        with topics.lock:
            target_ms = topics.now_ms + round(seconds * 1000)
            while (due_ms := self._worker.next_event_ms(target_ms)) is not None:
                topics.now_ms = max(topics.now_ms, due_ms)
                self._worker.tick()
            topics.now_ms = target_ms
            self._worker.run()
            self._worker.tell_of_worker()
        topics.notify()


class MemoryBroker:
    """Kafka and a worker in this process: for tests of programs that send and consume.

    ::

        with MemoryBroker("queues.yaml") as broker:
            async with RingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await producer.send("orders", "a dozen eggs")
            assert broker.counts("orders").ready == 1

    All clients reach it, with `bootstrap_servers=broker.bootstrap_servers`. The queues behave as
    those of a worker: it is the worker's own code. What is sent takes effect at once. Nothing is
    stored when the block ends. The status has no rates, and redrive needs Kafka.

    Args:
        queues: a `queues.yaml` as a path, or its contents; None: the shipped one, with the queue
            `orders`.
        application: the `application` of the clients.
        partitions: of each topic.
        topics: topics of yours that no route reads, such as those that a handler sends to.

    Raises:
        ConfigError: `queues` or another argument is not valid; it lists every mistake.
        BadArgument: `topics` is no list.
    """

    def __init__(
        self,
        queues: Path | str | Mapping[str, Any] | None = None,
        *,
        application: str = "ringfaust",
        partitions: int = 1,
        topics: Sequence[str] = (),
    ) -> None:
        given = {"application": application, "partitions": partitions}
        check(WorkerConfig, given, "MemoryBroker")
        if isinstance(topics, str):
            raise BadArgument(f"topics: names are given as a list, not {topics!r}")
        self.application = application
        self.bootstrap_servers = f"{MEMORY}{next(_numbers)}"
        """What clients connect to."""
        self.topics = MemoryTopics(wall_ms())
        self._worker = MemoryWorker(self.topics, application, _read(queues), partitions)
        for topic in topics:
            self.topics.create(topic, partitions)
        self.clock = Clock(self.topics, self._worker)

    def __enter__(self) -> Self:
        """Let clients connect."""
        serve_in_memory(self.bootstrap_servers, self)
        return self

    def __exit__(self, *_: object) -> None:
        """Refuse new clients."""
        end_in_memory(self.bootstrap_servers)

    # --- what happened ---------------------------------------------------------------------------

    def counts(self, queue: str) -> Counts:
        """The counts of a queue: how many messages it holds, by state, and how many have left.

        Raises:
            BadArgument: no queue has or had that name, and the configuration declares none.
        """
        with self.topics.lock:
            self._worker.check_name(queue)
            return self._worker.counts().get(queue, Counts())

    def dead(self) -> list[DeadMessage]:
        """The messages of the dead topic, each with its `id`, `queue`, `reason` and `record`."""
        return self._gone(Role.DEAD)

    def evicted(self) -> list[DeadMessage]:
        """The messages that rings have evicted."""
        return self._gone(Role.EVICTED)

    def _gone(self, role: Role) -> list[DeadMessage]:
        records = self.records(topic_name(self.application, role))
        return [*DeadMessage.read_all(records)]

    def records(self, topic: str) -> list[FetchedRecord]:
        """The records of a topic, by partition and in their order.

        Raises:
            BadArgument: there is no such topic.
        """
        with self.topics.lock:
            known = self.topics.partitions
            if topic not in known:
                raise BadArgument(f"no topic {topic!r}; {suggestion(topic, sorted(known))}")
            places = [(topic, number) for number in range(known[topic])]
            return [record for place in places for record in self.topics.read(place, 0)]

    async def settled(self, *queues: str) -> None:
        """Wait until no message of these queues, by default of all, is ready or held.

        Those that are scheduled for later, such as retries, stay: advance the clock.

        Raises:
            NotSettled: some still are after 10 s.
            BadArgument: see `counts`.
        """
        for queue in queues:
            self._worker.check_name(queue)
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        self.topics.watch(wake)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_TIMEOUT_S):
                    while self._open(queues):
                        await changed.wait()
                        changed.clear()
        finally:
            self.topics.unwatch(wake)
        if still := self._open(queues):
            raise NotSettled(f"after {SETTLE_TIMEOUT_S:g} s: {'; '.join(still)}")

    def _open(self, queues: Sequence[str]) -> list[str]:
        with self.topics.lock:
            found = self._worker.counts()
        return [
            f"{name} has {counts.ready} ready and {counts.delivering} held messages"
            for name, counts in found.items()
            if (not queues or name in queues) and counts.ready + counts.delivering
        ]

    # --- for its clients -------------------------------------------------------------------------

    def producer(self, **_: Any) -> AIOKafkaProducer:
        """A producer of this broker."""
        return MemoryProducer(self)

    def consumer(self, **_: Any) -> AIOKafkaConsumer:
        """A consumer of this broker."""
        return MemoryConsumer(self.topics)

    def writer(self, transactional_id: str) -> Writer:
        """A transactional producer of this broker."""
        return MemoryWriter(self)

    async def subscribed_topics(self, producer: AIOKafkaProducer, group: str) -> frozenset[str]:
        """What the worker reads."""
        return self._worker.inputs

    def write(self, records: Sequence[OutgoingRecord], writer: MemoryClient) -> list[FetchedRecord]:
        """Store records, all at once, and process them."""
        with self.topics.lock:
            stored = [self.topics.append(each) for each in records]
            for each in stored:
                self._worker.note(each, writer)
            self._worker.run()
        self.topics.notify()
        return stored


def _read(queues: Path | str | Mapping[str, Any] | None) -> QueuesConfig:
    if isinstance(queues, Mapping):
        return check(QueuesConfig, queues, "queues")
    return load_queues(Path(queues) if queues else shipped("config") / "queues.yaml")
