"""Workers that are driven by hand: no threads, no sleeps, and an event loop only for look-ups.

Tasks, processor, input buffer, pausing, replay and start positions are the worker's own. They get
the virtual clock, store, producer and consumer as arguments; nothing is patched. A commit stops at
each `Pause` until it is driven on, fails, or is lost in a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from aiokafka.errors import KafkaConnectionError
from faust.types import TP

from ringfaust.core.model import Heard
from ringfaust.core.state import State
from ringfaust.errors import ProtocolError, UnknownRowVersion
from ringfaust.processor.processor import Processor, Writes
from ringfaust.processor.row_store import ByteStore
from ringfaust.protocol.records import FetchedRecord
from ringfaust.protocol.routes import Route
from ringfaust.protocol.stored_rows import Feeds
from ringfaust.worker.context import TaskSettings, WorkerContext
from ringfaust.worker.interfaces import LogEnd
from ringfaust.worker.partition.repartition import repartition_task
from ringfaust.worker.partition.work import partition_task
from ringfaust.worker.store.changelog import OWN_PACE
from ringfaust.worker.store.follower import Follower
from tests.sim.broker import Broker
from tests.sim.disk import Disk, VirtualStore
from tests.sim.driver import Sleep, SteppedCommit, TaskDriver
from tests.sim.faults import Faults
from tests.sim.kafka import (
    Journal,
    LateCommit,
    Reader,
    VirtualConsumer,
    VirtualProducer,
    virtual_bounds,
    virtual_group_offsets,
    virtual_orders,
    virtual_topic_ids,
)
from tests.sim.older import OlderStore, as_older_reads
from tests.sim.plan import PARTITIONS, TOPICS, Plan
from tests.sim.queue_book import demand

TOMBSTONE_MS = 3_600_000
SKEW_MAX_MS = 250
"""How far a clock may differ from the broker's before time stops to act (R115)."""


class VirtualClock:
    """A worker's clock: the broker's, with an error."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._skew_ms = 0
        self.steady_since_ms = 0
        """Since when it has not jumped, by itself."""

    @property
    def skew_ms(self) -> int:
        """How far it is ahead of the broker's."""
        return self._skew_ms

    @skew_ms.setter
    def skew_ms(self, ms: int) -> None:
        self._skew_ms = ms
        self.steady_since_ms = self.wall_ms()

    @property
    def is_right(self) -> bool:
        return abs(self._skew_ms) <= SKEW_MAX_MS

    def wall_ms(self) -> int:
        return self._broker.now_ms + self._skew_ms

    def monotonic_s(self) -> float:
        return self._broker.now_ms / 1000

    async def sleep(self, seconds: float) -> None:
        await Sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class VirtualLogEnds:
    """What `LogEnds` answers, if it asks all the time and notices every pause and jump."""

    def __init__(self, broker: Broker, clock: VirtualClock) -> None:
        self._broker = broker
        self._clock = clock
        self._assigned: dict[TP, int] = {}
        """By partition: when it was assigned."""
        self._last: dict[TP, LogEnd] = {}

    def assign(self, tps: Iterable[TP]) -> None:
        for tp in tps:
            self._assigned[tp] = self._clock.wall_ms()
            self._last.pop(tp, None)

    def end(self, tp: TP) -> LogEnd | None:
        broker, clock = self._broker, self._clock
        if broker.is_reachable:
            reachable_ms = broker.reachable_since_ms + clock.skew_ms
            since_ms = max(clock.steady_since_ms, self._assigned[tp], reachable_ms)
            self._last[tp] = LogEnd(clock.wall_ms(), since_ms, broker.log(*tp).next_offset())
        return self._last.get(tp)


class JournalProcessor(Processor[Any]):
    """Notes what it was given, so that an uninterrupted run can do the same."""

    def __init__(self, journal: Journal, faults: Faults, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._journal = journal
        self._faults = faults
        self._done: list[tuple[Any, ...]] = []
        journal.processor = self
        journal.pending = []

    def take(self, records: Iterable[FetchedRecord], wall_ms: int) -> list[FetchedRecord]:
        read: list[FetchedRecord] = []
        before = dict(self.positions)
        left = super().take(_noting(records, read), wall_ms)
        skipped = {id(record) for record in left}
        taken = [record for record in read if id(record) not in skipped]
        self._faults.check_decided(
            each for each in taken if each.offset >= before.get(each.topic, 0)
        )
        self._done.append(("take", taken, wall_ms))
        return left

    def skip(self, record: FetchedRecord, why: ProtocolError, wall_ms: int) -> None:
        super().skip(record, why, wall_ms)
        self._done.append(("skip", record, why, wall_ms))

    def go_to(self, positions: Any, ids: Any, gaps: Any) -> None:
        super().go_to(positions, ids, gaps)
        if gaps:
            self._done.append(("go_to", dict(positions), dict(ids), gaps))

    def tick(self, wall_ms: int, heard: Heard | None = None) -> None:
        unread = self._journal.old_log
        demand(not unread, "a tick before the log of the assignment was read:", unread)
        demand(self._journal.clock.is_right, "a tick by a clock that is wrong")
        super().tick(wall_ms, heard)
        self._done.append(("tick", wall_ms, heard))

    def start(self) -> None:
        super().start()
        self._done.append(("start",))

    def writes(self) -> Writes:
        self._journal.pending, self._done = self._done, []
        return super().writes()


def _noting(records: Iterable[FetchedRecord], read: list[FetchedRecord]) -> Iterator[FetchedRecord]:
    """The records, each noted as it is read."""
    for record in records:
        read.append(record)
        yield record


class Unit(NamedTuple):
    """What is assigned together: a partition of ringfaust's topics, or a repartitioned one."""

    number: int
    repartitioned: str = ""
    """The topic of the latter."""

    def __str__(self) -> str:
        """Its name for operators."""
        return f"{self.repartitioned}/{self.number}" if self.repartitioned else f"{self.number}"


def units(plan: Plan) -> list[Unit]:
    return [
        *(Unit(number) for number in range(PARTITIONS)),
        *(Unit(number, "far") for number in range(plan.far_partitions)),
    ]


class Worker:
    """A process with a disk. A kill drops its tasks."""

    def __init__(
        self, name: str, broker: Broker, plan: Plan, journals: dict[int, Any], faults: Faults
    ) -> None:
        self._broker = broker
        self._faults = faults
        self._plan = plan
        self._journals = journals
        self.disk = Disk()
        self.clock = VirtualClock(broker)
        self.reader = Reader(broker)
        self._log_ends = VirtualLogEnds(broker, self.clock)
        self.drivers: dict[Unit, TaskDriver] = {}
        self.is_older = False
        """Whether it is of the version before this one (R129)."""
        self._loop = asyncio.new_event_loop()
        self._revision = 0
        """The newest configuration that it knows (R128)."""
        self._followers: dict[int, Follower] = {}
        self._routes = {"far": Route("far", "{header:ringfaust-queue}")}
        self._context = WorkerContext(
            application="sim",
            partitions=PARTITIONS,
            topics=TOPICS,
            data_dir=Path("/", name),
            cache_bytes=lambda: plan.cache_bytes,
            tick_ms=0,
            feeds=plan.feeds(),
            clock_skew_max_ms=SKEW_MAX_MS,
            stops_at_gaps=False,
            tombstone_ms=TOMBSTONE_MS,
            processor_config=plan.processor_config(),
            task_settings=TaskSettings(
                batch_records=plan.batch_records,
                slice_records=plan.slice_records,
                yields_per_slice=1,
            ),
            clock=self.clock,
            open_store=self._open_store,
            open_producer=_never,
            open_changelog=lambda: VirtualConsumer(broker),
            open_standby_log=_never,
            new_processor=_never,
            new_commit_slot=_never,
            group_offsets=virtual_group_offsets(broker),
            read_bounds=virtual_bounds(broker),
            topic_ids=virtual_topic_ids(broker),
            leave_group=_never,
            log_end=self._log_ends.end,
            reader=lambda: cast(Any, self.reader),  # nobody calls what it lacks
            open_orders=_never,
            crash=_never,
            took_up=self._learn,
            newest_configuration=_never,
        )

    def _new_driver(self, unit: Unit) -> TaskDriver:
        journal, commit = Journal(self.clock), SteppedCommit()

        def new_processor(store: Any, positions: Any, new_batches: Any, /) -> JournalProcessor:
            state = State(ByteStore(store), self._plan.catalog(), refill=self._plan.refill)
            config = self._plan.processor_config()
            return JournalProcessor(journal, self._faults, config, state, positions, new_batches)

        def open_producer(number: int, transactional_id: str) -> Any:
            committed = [] if unit.repartitioned else self._journals.setdefault(number, [])
            check = partial(self._faults.check_allowed, unit)
            return VirtualProducer(
                self._broker,
                number,
                transactional_id,
                journal,
                committed=committed,
                check_allowed=check,
            )

        context = replace(
            self._context,
            open_producer=open_producer,
            new_processor=new_processor,
            new_commit_slot=lambda: commit,
            open_orders=virtual_orders(self._broker, journal.unanswered),
        )
        if unit.repartitioned:
            route = self._routes[unit.repartitioned]
            task = repartition_task(route, unit.number, context, self._revision)
        else:
            topics = frozenset((TOPICS["control"], TOPICS["hop"], "keyed", "timed"))
            task = partition_task(self._follower(unit.number), topics, context)
        return TaskDriver(task, commit, self.reader, journal, self._loop)

    def _open_store(self, path: Path) -> VirtualStore:
        return (OlderStore if self.is_older else VirtualStore)(path, self.disk)

    def _learn(self, revision: int, _: Feeds) -> None:
        self._revision = max(revision, self._revision)

    def _follower(self, number: int) -> Follower:
        return self._followers.setdefault(number, Follower(number, self._context))

    def follow(self, number: int, most: int) -> None:
        """Its standby of a partition that another worker has applies up to `most` records."""
        if Unit(number) in self.drivers:
            return
        follower = self._follower(number)
        if not follower.is_free:
            _run_at_once(follower.catch_up(OWN_PACE))
        log = self._broker.log(*follower.changelog)
        records, next_offset = log.read(follower.next_offset, most)
        end_ms = self._broker.now_ms if next_offset >= log.end else None
        follower.follow(records, next_offset, end_ms)

    def assign(self, unit: Unit) -> None:
        """Open what it is assigned.

        Raises:
            UnknownRowVersion: it is too old for the level in use.
        """
        driver = self._new_driver(unit)
        self._log_ends.assign(driver.given)
        self.reader.assign(driver.given)
        try:
            driver.open()
        except UnknownRowVersion:
            driver.close()
            self.reader.revoke(driver.given)
            raise
        self.drivers[unit] = driver

    def revoke(self, unit: Unit) -> None:
        driver = self.drivers.pop(unit, None)
        if driver is not None:
            driver.close()
            self.reader.revoke(driver.given)

    def hand_over(self, unit: Unit) -> None:
        self.drivers[unit].hand_over()

    def is_done(self, unit: Unit) -> bool:
        """Whether it has nothing to do until something comes, or has stopped."""
        driver = self.drivers[unit]
        if driver.stopped is not None:
            return True
        return driver.is_idle() and not any(
            self.reader.has_more(tp) or self._is_another(driver, tp) for tp in driver.tps
        )

    def _is_another(self, driver: TaskDriver, tp: TP) -> bool:
        """What `Assignment` sees: the topic was created again after the task had looked it up."""
        return driver.knows(tp) not in ("", self._broker.topic_id(tp.topic))

    def crash(self) -> None:
        """It is killed."""
        for driver in self.drivers.values():
            driver.crash()
            self.reader.revoke(driver.given)
        self.drivers.clear()
        self._followers.clear()
        self.disk.unlock()

    def close(self) -> None:
        """Close its event loop."""
        for waiting in asyncio.all_tasks(self._loop):
            waiting.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def cycle(self, unit: Unit) -> None:
        if unit in self.drivers:
            self.drivers[unit].cycle()

    def fetch(self, unit: Unit, topic: str, most: int, again: int = 0) -> None:
        driver = self.drivers.get(unit)
        if driver is None or driver.is_fenced:
            return
        tp = TP(topic, unit.number)
        if self.reader.is_unreadable(tp) or self._is_another(driver, tp):
            driver.check_inputs(tp)
            return
        batch = self.reader.fetch(tp, most, again)
        if batch is not None and self.is_older:
            batch = replace(batch, records=[as_older_reads(each) for each in batch.records])
        if batch is not None:
            driver.offer(batch)

    def drive_commit(self, unit: Unit, pauses: int, *, fails: str = "") -> None:
        """The commit in flight advances by some pauses; `fails`: then it fails, or comes late."""
        driver = self.drivers.get(unit)
        if driver is None:
            return
        for _ in range(pauses):
            driver.drive_commit()
        if fails:
            driver.drive_commit(LateCommit() if fails == "late" else KafkaConnectionError())


def _run_at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    with pytest.raises(StopIteration):
        work.send(None)


def _never(*_: object) -> Any:
    raise AssertionError("the simulator does not use this")
