"""The worker of a `MemoryBroker`: a worker's own processors on topics and stores in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add

from ringfaust.client.errors import BadArgument
from ringfaust.config.queues import QueuesConfig
from ringfaust.core.address import subscription_queue
from ringfaust.core.catalog import Configuration
from ringfaust.core.commands import Attach, Detach, Subscribe
from ringfaust.core.model import Counts
from ringfaust.core.patterns import is_pattern
from ringfaust.core.state import State
from ringfaust.core.transitions.attaching import deadline
from ringfaust.core.transitions.sweeping import timers
from ringfaust.errors import ProtocolError, suggestion
from ringfaust.processor.outbox import Outputs
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.repartition import Repartitioner
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.control import QueryRecord, read_control
from ringfaust.protocol.names import topic_name
from ringfaust.protocol.records import FetchedRecord, OutgoingRecord, OutRecord, Role
from ringfaust.protocol.route_changes import feeds_of, routes_of
from ringfaust.testing.memory.clients import MemoryClient
from ringfaust.testing.memory.status import declared_in, queue_rows, worker_row
from ringfaust.testing.memory.topics import MemoryTopics, Place

MAX_RECORD_BYTES = 900_000
"""As the default of worker.yaml."""
CACHE_BYTES = 64 * 1024 * 1024
_COMMITTED = (
    Role.CONTROL, Role.HOP, Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES,
    Role.STATUS, Role.CONFIGURATION,
)  # fmt: skip


@dataclass
class _Partition:
    number: int
    processor: Processor[list[OutRecord]]
    store: MemoryKeyValue
    inputs: Sequence[str] = ()
    """The topics that it reads."""
    revision: int = -1
    """The configuration that has them; 0: that of the broker."""


@dataclass
class _Alive:
    """The consumers that are attached, each with the producer of its program."""

    consumers: dict[tuple[int, str, str], MemoryClient] = field(default_factory=dict)
    """By partition, queue and name."""

    def note(self, record: FetchedRecord, writer: MemoryClient) -> None:
        """Note who attaches and detaches with a control record."""
        try:
            asked = read_control(record.value)
        except ProtocolError:
            return  # the worker refuses it
        if isinstance(asked, QueryRecord):
            return
        match asked.command():
            case Attach(queue, consumer):
                self.consumers[record.partition, queue, consumer] = writer
            case Subscribe(consumer=consumer) as subscribe:
                queue = subscription_queue(subscribe)
                self.consumers[record.partition, queue, consumer] = writer
            case Detach(queue, consumer):
                self.consumers.pop((record.partition, queue, consumer), None)

    def has(self, partition: int, queue: str, consumer: str) -> bool:
        """Whether the program of a consumer runs."""
        writer = self.consumers.get((partition, queue, consumer))
        return writer is not None and writer.is_open

    def heartbeats(self, control_topic: str) -> Iterator[OutgoingRecord]:
        """Yield a heartbeat of each consumer whose program runs; forget the others."""
        self.consumers = {who: each for who, each in self.consumers.items() if each.is_open}
        for partition, queue, consumer in self.consumers:
            said = {"type": "heartbeat", "queue": queue, "consumer": consumer}
            yield OutgoingRecord(control_topic, json.dumps(said).encode(), partition=partition)


class MemoryWorker:
    """Processes what is in the topics. Not thread-safe: the caller holds the topics' lock."""

    def __init__(
        self, topics: MemoryTopics, application: str, queues: QueuesConfig, partitions: int
    ) -> None:
        """Create the topics of the application and of its routes."""
        self._topics = topics
        self._names = {role: topic_name(application, role) for role in _COMMITTED}
        self._alive = _Alive()
        for name in self._names.values():
            topics.create(name, partitions)
        config = ProcessorConfig(
            control_topic=self._names[Role.CONTROL],
            repartition_topic=self._names[Role.HOP],
            routes=(),
            max_record_bytes=MAX_RECORD_BYTES,
            log_is_clock=False,
            partitions=partitions,
            configuration=Configuration(0, queues.document(), "MemoryBroker"),
        )
        self.inputs: frozenset[str] = frozenset()
        """The topics of the routes."""
        self._used: set[str] = set()
        """The queues that anything has happened to."""
        self._document = queues.document()
        self._repartitionings: dict[Place, Repartitioner[list[OutRecord]]] = {}
        self._copied: dict[Place, int] = {}
        """Up to where partitions of repartitioned topics were copied."""
        catalog = queues.catalog()
        self._partitions: list[_Partition] = []
        for number in range(partitions):
            store = MemoryKeyValue()
            state = State(ByteStore(store), catalog)
            processor: Processor[list[OutRecord]] = Processor(config, state, {}, list)
            self._partitions.append(_Partition(number, processor, store))
            processor.start()
            declared = declared_in(state, number, partitions)
            self._publish(number, queue_rows(state, number, declared, topics.now_ms))
        for each in self._partitions:
            self._use_routes(each)
        self._started_ms = topics.now_ms
        self.tell_of_worker()

    def _use_routes(self, each: _Partition) -> None:
        """Let a partition use the routes of the configuration that it has taken up (R128)."""
        count, used = len(self._partitions), each.processor.state.configuration
        feeds = feeds_of(self._document if used is None else used.document, count)
        direct = routes_of(feeds, repartitioned=False)
        each.processor.use_routes(direct)
        ours = (self._names[Role.CONTROL], self._names[Role.HOP])
        each.inputs, each.revision = (
            (*ours, *(route.topic for route in direct)),
            each.processor.revision,
        )
        if each.revision < max(other.revision for other in self._partitions):
            return
        self.inputs = frozenset(feed.topic for feed in feeds.routes)
        for topic in self.inputs:
            self._topics.create(topic, count)
        self._copied |= {tp: work.position for tp, work in self._repartitionings.items()}
        self._repartitionings = {
            (route.topic, number): Repartitioner(
                route, count, MAX_RECORD_BYTES, self._copied.get((route.topic, number), 0), list
            )
            for route in routes_of(feeds, repartitioned=True)
            for number in range(count)
        }

    def note(self, record: FetchedRecord, writer: MemoryClient) -> None:
        """Note who has written a record: its consumers are alive while `writer` is open."""
        if record.topic == self._names[Role.CONTROL]:
            self._alive.note(record, writer)

    def run(self) -> None:
        """Process all there is, and do what is due."""
        self._run()
        while any(map(self._is_due, self._partitions)):
            self.tick()

    def _is_due(self, each: _Partition) -> bool:
        wake_ms = each.processor.next_wake_ms()
        return wake_ms is not None and wake_ms <= self._topics.now_ms

    def _run(self) -> None:
        moved = True
        while moved:
            moved = any([self._repartition(each) for each in [*self._repartitionings]])
            moved |= any([self._process(each) for each in self._partitions])

    def tick(self) -> None:
        """Do what is due now; a program that runs has sent its heartbeats."""
        for heartbeat in self._alive.heartbeats(self._names[Role.CONTROL]):
            self._topics.append(heartbeat)
        self._run()
        for each in self._partitions:
            each.processor.tick(self._topics.now_ms)
            self._commit(each)
        self._run()

    def next_event_ms(self, until_ms: int) -> int | None:
        """When time alone changes something next, if that is by `until_ms`; None: it does not.

        Programs that run send heartbeats, so the silence of their consumers changes nothing.
        """
        found = (at_ms for each in self._partitions for at_ms in self._events(each, until_ms))
        return min((at_ms for at_ms in found if at_ms <= until_ms), default=None)

    def _events(self, each: _Partition, until_ms: int) -> Iterator[int]:
        state = each.processor.state
        for (wake_ms, name), _ in state.wakes:
            if wake_ms > until_ms:
                return
            if not name:  # distributed transactions
                yield wake_ms
            elif (queue := state.queue(name)) is not None:
                silent = [
                    deadline(queue, consumer)
                    for consumer in queue.consumers.values()
                    if not self._alive.has(each.number, name, consumer.name)
                ]
                yield from (max(at_ms, wake_ms) for at_ms in (*timers(queue), *silent) if at_ms)

    def tell_of_worker(self) -> None:
        """Publish that the worker runs now."""
        level = {each.number: each.processor.state.level for each in self._partitions}
        row = worker_row(level, len(self.counts()), self._started_ms, self._topics.now_ms)
        self._publish(0, [row])

    def check_name(self, name: str) -> None:
        """Refuse a queue that is misspelled, or a pattern: it would look like one that is empty.

        Raises:
            BadArgument: no queue has or had that name, and the configuration declares none.
        """
        catalogs = [each.processor.state.catalog for each in self._partitions]
        is_declared = not is_pattern(name) and any(each.declares(name) for each in catalogs)
        if name not in self._used and not is_declared:
            declared = {known for each in catalogs for known in each.declared_names()}
            known = suggestion(name, sorted(declared | self._used))
            raise BadArgument(f"no queue {name!r}; {known}")

    def counts(self) -> dict[str, Counts]:
        """The counts of each queue that has had a message or a command."""
        found: dict[str, Counts] = {}
        for each in self._partitions:
            for name, _ in each.processor.queues():
                if (queue := each.processor.state.queue(name)) is not None:
                    known = found.get(name, Counts()).stored()
                    found[name] = Counts(*map(add, known, queue.counts.stored()))
        return found

    def _repartition(self, where: Place) -> bool:
        work = self._repartitionings[where]
        records = self._topics.read(where, work.position)
        if records:
            work.take(records, self._topics.now_ms)
            self._write(where[1], work.outputs())
        return bool(records)

    def _process(self, each: _Partition) -> bool:
        processor, moved = each.processor, False
        for topic in each.inputs:
            processor.resume(topic)  # it pauses again if there still is no room
            position = processor.positions.get(topic, 0)
            records = self._topics.read((topic, each.number), position)
            if records:
                processor.take(records, self._topics.now_ms)
                moved |= processor.positions.get(topic, 0) > position
                self._commit(each)
                if processor.revision != each.revision:
                    self._use_routes(each)
        return moved

    def _commit(self, each: _Partition) -> None:
        processor = each.processor
        changed = processor.activity().changed
        self._used.update(changed)
        outputs = processor.outputs()
        each.store.apply(processor.writes().store)
        processor.committed(CACHE_BYTES)
        self._write(each.number, outputs)
        rows = queue_rows(processor.state, each.number, changed, self._topics.now_ms)
        self._publish(each.number, rows)

    def _publish(self, number: int, rows: Iterable[OutRecord]) -> None:
        self._write(number, {(Role.STATUS, None): [*rows]})

    def _write(self, own: int, outputs: Outputs[list[OutRecord]]) -> None:
        for (role, partition), records in outputs.items():
            number = own if partition is None else partition
            for key, value, headers in records:
                record = OutgoingRecord(self._names[role], value, key, headers, number)
                self._topics.append(record)
