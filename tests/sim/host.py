"""The files of the Faust host, driven by hand: no event loop, no threads, no sleeps.

`Partition` and `RepartitionTask` are the real ones, with the real processor, inbox, pausing, replay
and start positions. Only what talks to Kafka, to RocksDB or to a clock is given in their place. A
commit stands still at each `Pause`, until it is driven on, fails, or is forgotten by a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from aiokafka.errors import KafkaConnectionError, KafkaError, ProducerFenced
from faust.types import TP

from ringfaust.core import limits
from ringfaust.processor.processor import Processor, Writes
from ringfaust.protocol.records import InRecord
from ringfaust.protocol.routes import Route
from ringfaust.worker import changelog, partition
from ringfaust.worker import task as loop
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.partition import Partition
from ringfaust.worker.repartition import RepartitionTask
from ringfaust.worker.task import Loop
from tests.sim.broker import Broker
from tests.sim.disk import Disk, VirtualStore
from tests.sim.kafka import Reader, VirtualCommitter, VirtualConsumer, virtual_group_offsets
from tests.sim.plan import PARTITIONS, TOPICS, Plan
from tests.sim.queue_book import demand

TOMBSTONE_MS = 3_600_000


class VirtualTime:
    """Stands for the module `time`: the clock of the worker that is driven."""

    def __init__(self) -> None:
        self.now_ms = 0

    def time(self) -> float:
        return self.now_ms / 1000

    def time_ns(self) -> int:
        return self.now_ms * 1_000_000

    def monotonic(self) -> float:
        return 0.0


TIME = VirtualTime()


class JournalRoad(Processor[Any]):
    """Notes what it was given, so that the same can be done again without any crash."""

    def __init__(self, shared: Any, state: Any, positions: Any, gather: Any) -> None:
        super().__init__(shared, state, positions, gather)
        self._committer: VirtualCommitter = gather.__self__
        self._done: list[tuple[Any, ...]] = []

    def take(self, records: Iterable[InRecord], wall_ms: int) -> list[InRecord]:
        records = list(records)
        left = super().take(records, wall_ms)
        passed_over = {id(record) for record in left}
        taken = [record for record in records if id(record) not in passed_over]
        self._done.append(("take", taken, wall_ms))
        return left

    def tick(self, wall_ms: int) -> None:
        unread = self._committer.old_log
        demand(not unread, "time acts before the log was read that was there:", unread)
        super().tick(wall_ms)
        self._done.append(("tick", wall_ms))

    def start(self) -> None:
        super().start()
        self._done.append(("start",))

    def writes(self) -> Writes:
        self._committer.journal, self._done = self._done, []
        return super().writes()


def _run(work: Coroutine[Any, Any, Any], meanwhile: Callable[[], None] | None = None) -> Any:
    """Drive it to its end; `meanwhile`: whenever it lets the network have its turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            return done.value
        if meanwhile is not None:
            meanwhile()


class Driven(Loop):
    """A loop whose turns are taken, and whose commits are driven, from outside."""

    _commit: Coroutine[Any, Any, None] | None = None
    _failed: Exception | None = None
    is_fenced = False

    def _launch(self, commit: Coroutine[Any, Any, None]) -> None:
        self._commit = commit

    async def _landed(self) -> None:
        while self._commit is not None:
            self.drive()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    async def _let_go(self) -> None:
        self.forget()
        self._release()

    def drive(self, error: Exception | None = None) -> None:
        """The commit goes on to its next pause, or fails there."""
        if self._commit is None:
            return
        try:
            if error is None:
                self._commit.send(None)
            else:
                self._commit.throw(error)
        except StopIteration:
            self._commit = None
        except KafkaError as failed:
            self._commit = None
            self._failed = failed

    def forget(self) -> None:
        """The process is gone, and what it was about to write with it."""
        if self._commit is not None:
            self._commit.close()
        self._commit = self._committer = self._failed = None

    def rests(self) -> bool:
        """Has it taken all that has arrived, and let time act?"""
        is_waiting = getattr(self, "_ends", None) is not None
        return not (self._inbox.arrived.is_set() or is_waiting or self.is_fenced)

    def turn(self, wall_ms: int) -> None:
        """One turn of the loop, as in `_run`."""
        if self.is_fenced:  # it has waited, and no rebalance came
            self._reopen()
        try:
            if self._commit is None:
                _run(self._landed())
            _run(self._do_turn(self._inbox.take(), wall_ms), self.drive)
        except ProducerFenced:
            _run(self._let_go())
            self.is_fenced = True
        except KafkaError:
            _run(self._let_go())
            self._reopen()

    def open_at(self, reader: Reader) -> Mapping[str, int]:
        """An assignment."""
        return _run(self.open(reader.bounds(self.tps)))

    def _reopen(self) -> None:
        self.is_fenced = False
        _run(self._open())
        self._inbox.clear()
        reader = self._shared.reader()
        for tp in self.tps:
            _run(reader.seek(tp, self._positions()[tp.topic]))

    def finish(self) -> None:
        """A clean close, as in `close`."""
        if not self.is_fenced:
            try:
                _run(self._landed())
            except KafkaError:
                pass
            _run(self._let_go())


class DrivenPartition(Driven, Partition):
    """See `Driven`."""

    def open_at(self, reader: Reader) -> Mapping[str, int]:
        self.old_log = {tp.topic: reader.last_offset(tp) for tp in self.tps}
        return super().open_at(reader)

    async def _resume(self, committed: Mapping[str, int]) -> None:
        self._committer.old_log = self.old_log
        await super()._resume(committed)

    def turn(self, wall_ms: int) -> None:
        super().turn(wall_ms)
        if not self.is_fenced:
            positions, blocked = self._road.positions, self._road.blocked
            unread = [
                topic
                for topic, last in self.old_log.items()
                if positions.get(topic, 0) <= last and topic not in blocked
            ]
            if not unread:
                self.old_log.clear()


class DrivenForwarder(Driven, RepartitionTask):
    """See `Driven`."""


class Unit(NamedTuple):
    """What is assigned as one: a partition of ours, or one of a topic that takes the hop."""

    number: int
    hopping: str = ""


def units(plan: Plan) -> list[Unit]:
    return [
        *(Unit(number) for number in range(PARTITIONS)),
        *(Unit(number, "far") for number in range(plan.far_partitions)),
    ]


class Worker:
    """A process with a disk. It is killed by dropping its loops."""

    def __init__(self, name: str, broker: Broker, plan: Plan, journals: dict[int, Any]) -> None:
        self.broker = broker
        self.journals = journals
        self.disk = Disk()
        self.skew_ms = 0
        """How far its clock is from the broker's."""
        self.reader = Reader(self)
        self.loops: dict[Unit, Driven] = {}
        self._routes = {"far": Route("far", "{header:ringfaust-queue}")}
        self._shared = WorkerContext(
            application="sim",
            partitions=PARTITIONS,
            topics=TOPICS,
            client={"worker": self},
            data_dir=Path("/", name),
            cache=self.disk,  # type: ignore[arg-type]
            cache_bytes=plan.cache_bytes,
            batch_records=plan.batch_records,
            tick_ms=0,
            tombstone_ms=TOMBSTONE_MS,
            fenced_wait_s=0,
            processor_config=plan.processor_config(),
            catalog=plan.catalog(),
            reader=lambda: self.reader,  # type: ignore[arg-type,return-value]
            crash=lambda error: None,
        )

    @property
    def wall_ms(self) -> int:
        return self.broker.now_ms + self.skew_ms

    def take_over(self, unit: Unit) -> None:
        """It is assigned the unit."""
        TIME.now_ms = self.wall_ms
        if unit.hopping:
            one: Driven = DrivenForwarder(self._routes[unit.hopping], unit.number, self._shared)
        else:
            topics = frozenset((TOPICS["control"], TOPICS["hop"], "keyed", "timed"))
            one = DrivenPartition(unit.number, topics, self._shared)
        positions = one.open_at(self.reader)
        self.loops[unit] = one
        self.reader.go_to({TP(topic, unit.number): at for topic, at in positions.items()})

    def hand_over(self, unit: Unit) -> None:
        """It is told that the unit is no longer its own."""
        TIME.now_ms = self.wall_ms
        one = self.loops.pop(unit, None)
        if one is not None:
            one.finish()
            self.reader.revoke(one.tps)

    def rests(self, unit: Unit) -> bool:
        one = self.loops[unit]
        return one.rests() and not any(self.reader.has_more(tp) for tp in one.tps)

    def crash(self) -> None:
        """It is killed."""
        for one in self.loops.values():
            one.forget()
            self.reader.revoke(one.tps)
        self.loops.clear()
        self.disk.unlock()

    def turn(self, unit: Unit) -> None:
        TIME.now_ms = self.wall_ms
        if unit in self.loops:
            self.loops[unit].turn(self.wall_ms)

    def fetch(self, unit: Unit, topic: str, most: int, again: int = 0) -> None:
        one = self.loops.get(unit)
        if one is None or one.is_fenced:
            return
        batch = self.reader.fetch(TP(topic, unit.number), most, again)
        if batch is not None:
            one.offer(batch)

    def land(self, unit: Unit, stages: int, *, fails: bool = False) -> None:
        """The commit under way goes on, or fails at its next pause."""
        TIME.now_ms = self.wall_ms
        one = self.loops.get(unit)
        if one is None:
            return
        for _ in range(stages):
            one.drive()
        if fails:
            one.drive(KafkaConnectionError())


@contextmanager
def virtual(plan: Plan) -> Iterator[None]:
    """The host's files with what stands for Kafka, RocksDB and the clock."""
    with ExitStack() as stack:
        for module, name, stand_in in (
            (changelog, "AIOKafkaConsumer", VirtualConsumer),
            (changelog, "time", TIME),
            (partition, "RocksStore", VirtualStore),
            (partition, "Processor", JournalRoad),
            (partition, "time", TIME),
            (loop, "Committer", VirtualCommitter),
            (loop, "group_offsets", virtual_group_offsets),
            (loop, "_SLICE_RECORDS", plan.slice_records),
            (loop, "_LOOKS", 1),
            (limits, "REFILL", plan.refill),
        ):
            stack.enter_context(patch.object(module, name, stand_in))
        yield
