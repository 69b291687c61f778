"""The task of one partition: take the fetched records, decide, commit, apply.

The next batch is decided while the previous one commits, and is submitted once that commit
succeeds. So at most one batch is in flight, and the many small waits of a transaction cost no time.
Deciding runs in slices, between which the event loop serves the network.

If a commit fails, nobody knows whether the broker has it. The task then discards everything in
memory and reopens the partition: starting the producer settles the open transaction, and only then
does the task read where to resume.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from aiokafka.errors import IllegalStateError, KafkaError, ProducerFenced
from faust.types import TP

from ringfaust.processor.outbox import Outputs
from ringfaust.processor.processor import Writes
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.input_buffer import InputBuffer
from ringfaust.worker.interfaces import (
    Bounds,
    CancelledByNobody,
    CommitSlot,
    CommittedOffset,
    GroupOffsets,
    InputChanged,
    InputReader,
    OpenStore,
    PartitionStore,
    ReadBounds,
    StateLost,
    TaskProducer,
    WorkerClock,
)

log = logging.getLogger(__name__)

RETRY_MIN_S = 0.5
"""The first wait before another attempt to open a partition. Each further wait is twice as long."""
RETRY_MAX_S = 15.0
_STOP_TIMEOUT_S = 10.0
_LAST_COMMIT_TIMEOUT_S = 5.0
RECOVERING = "recovering"
FENCED = "fenced, because another worker may own it now"
CLOSED = "closed"
BACKLOG_RECORDS = 2000
"""With so many records waiting, a larger batch is better than an earlier commit."""
MAX_DECIDE_S = 0.25
"""But a batch that could be committed is not kept back for longer than this and one fetch."""


class PendingCommit(NamedTuple):
    """What one cycle has decided, to be committed in one transaction."""

    outputs: Outputs[RecordBatches]
    writes: Writes
    offsets: Mapping[str, int]
    """By input topic: the next offset to read."""
    wall_ms: int
    """When the cycle began."""
    note: str = ""
    """Committed with the offsets, for the next owner."""


class Work(Protocol):
    """What a task does with its records. It decides in memory; the task does the I/O."""

    @property
    def name(self) -> str:
        """For the log."""

    @property
    def tps(self) -> frozenset[TP]:
        """The input partitions."""

    @property
    def positions(self) -> Mapping[str, int]:
        """By input topic: the next offset to read."""

    @property
    def number(self) -> int:
        """The partition."""

    @property
    def is_caught_up(self) -> bool:
        """Whether the log that existed at the assignment has been read."""

    @property
    def remaining_records(self) -> int:
        """About how much of that log is left."""

    def restore(
        self,
        store: PartitionStore | None,
        committed: Mapping[str, CommittedOffset],
        new_batches: Callable[[], RecordBatches],
    ) -> None:
        """Load the committed state: at the assignment, and after a failed commit.

        Args:
            store: what `open_store` returned.
            committed: the group's offsets by topic. Nobody else can move them any more.
            new_batches: creates an empty container for the records of one topic.
        """

    def start(self, bounds: Mapping[str, Bounds], committed: Mapping[str, CommittedOffset]) -> None:
        """Set the start positions of a new assignment, after `restore`.

        Args:
            bounds: by topic, the log that exists now.
            committed: the group's offsets by topic.

        Raises:
            StateLost: state or input is missing.
        """

    def check_inputs(
        self, bounds: Mapping[str, Bounds], committed: Mapping[str, CommittedOffset]
    ) -> None:
        """Set the positions again, after `restore`, without a new assignment.

        Raises:
            StateLost: state or input is missing.
            GapFound: records are missing, and the worker stops then.
        """

    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the topics that it depends on, as far as they are known."""

    def poll_timeout_s(self) -> float | None:
        """How long to wait for records before the next cycle; None: until some arrive."""

    def begin_cycle(self, wall_ms: int) -> None:
        """Do what is due before the records of a cycle."""

    @property
    def is_full(self) -> bool:
        """Whether what the cycle has decided fills its transaction (R114)."""

    def decide(self, records: Iterator[FetchedRecord], wall_ms: int) -> None:
        """Process records in memory; what does not fit into this cycle stays in the iterator."""

    def decided_outputs(self) -> Collection[tuple[Role, int | None]]:
        """What the next commit is going to write, so far: roles, and partitions if not its own."""

    def skip_to(self, offsets: Mapping[TP, int]) -> None:
        """Called after `decide`: the consumer has read up to these offsets."""

    def take_commit(self, wall_ms: int, *, is_last: bool = False) -> PendingCommit | None:
        """Remove what the cycle has decided; None if there is nothing to commit.

        Args:
            wall_ms: the time now.
            is_last: the task is about to close: nothing may be left for a later commit.
        """

    def settle(self) -> None:
        """Called when a commit has succeeded and the store has it."""

    async def end_cycle(self) -> None:
        """Pause and resume inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """How a task divides its time."""

    batch_records: int
    """A batch takes no more fetches once it has as many records."""
    fenced_wait_s: float
    """How long a fenced task waits before it reopens its partition.

    If another worker owns the partition now, the rebalance that says so is on its way, and
    reopening would fence the new owner in turn.
    """
    slice_records: int = 250
    """Records that are decided before the event loop runs: about 1.5 ms."""
    yields_per_slice: int = 5
    """Passes of the event loop between slices: a request takes several to leave and return."""


class BackgroundCommit:
    """Runs a commit as an asyncio task."""

    def __init__(self) -> None:
        self._in_flight: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a commit is in flight."""
        return self._in_flight is not None and not self._in_flight.done()

    @property
    def is_done(self) -> bool:
        """Whether a submitted commit has ended that nobody has waited for."""
        return self._in_flight is not None and self._in_flight.done()

    def submit(self, commit: Coroutine[Any, Any, None], on_done: Callable[[], None]) -> None:
        """Start a commit. Calls `on_done` when it has ended."""
        self._in_flight = asyncio.ensure_future(commit)
        self._in_flight.add_done_callback(lambda _: on_done())

    async def wait(self) -> None:
        """Wait until no commit is in flight. Raises the error of the last one, once."""
        commit, self._in_flight = self._in_flight, None
        if commit is not None:
            await commit

    async def wait_or(self, arrived: asyncio.Event) -> None:
        """Wait until the commit in flight has ended, or until `arrived` is set."""
        await arrived.wait()  # the end of the commit sets it, too

    async def cancel(self) -> None:
        """Abandon the commit in flight."""
        commit, self._in_flight = self._in_flight, None
        if commit is not None:
            commit.cancel()
            await asyncio.wait({commit})


class Task:
    """Feeds one `Work`: owns its producer, its store and the commit in flight."""

    def __init__(
        self,
        work: Work,
        clock: WorkerClock,
        open_store: OpenStore,
        open_producer: Callable[[], TaskProducer],
        *,
        group_offsets: GroupOffsets,
        read_bounds: ReadBounds,
        reader: Callable[[], InputReader],
        commits: CommitSlot,
        crash: Callable[[BaseException], None],
        settings: TaskSettings,
    ) -> None:
        """Connect to nothing yet.

        Args:
            work: what to do with the records.
            clock: the source of time.
            open_store: opens the store and applies the committed changelog to it; returns None if
                the work keeps no state. Gets the group's offsets by topic.
            open_producer: creates the transactional producer, not started.
            group_offsets: reads the offsets that the consumer group has committed.
            read_bounds: reads the log that exists.
            reader: the consumer of the input topics.
            commits: runs the commit in flight.
            crash: stops the worker with an error.
            settings: how the task divides its time.
        """
        self.work = work
        self.buffer = InputBuffer(settings.batch_records, reader)
        self._clock = clock
        self._open_store = open_store
        self._open_producer = open_producer
        self._group_offsets = group_offsets
        self._read_bounds = read_bounds
        self._reader = reader
        self._commits = commits
        self._crash = crash
        self._settings = settings
        self._store: PartitionStore | None = None
        self._producer: TaskProducer | None = None
        self._runner: asyncio.Task[None] | None = None
        self._left: list[FetchedRecord] = []
        """Records that did not fit into the last cycle (R114)."""
        self._cycle_lock = asyncio.Lock()
        self._suspicion = ""
        self.trouble = RECOVERING
        """Why it does not run cycles; empty: it does."""

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self, bounds: Mapping[str, Bounds]) -> Mapping[str, int]:
        """Take the partition over from an earlier owner. Returns the position of each input topic.

        `bounds`: by topic, the log that exists now.

        Raises:
            StateLost: state or input is missing.
        """
        committed = await self._restore()
        self.work.start(bounds, committed)
        self.trouble = ""
        return self.work.positions

    async def _restore(self) -> Mapping[str, CommittedOffset]:
        """Settle the open transaction, then load the committed state. Returns group offsets."""
        self._producer = self._open_producer()
        try:
            await self._producer.start()
            # Read before the end of the changelog, so that they are never newer than the state.
            offsets = await self._group_offsets(self.work.tps)
            committed = {topic: found for (topic, _), found in offsets.items()}
            self._store = await self._open_store(committed)
            self.work.restore(self._store, committed, self._producer.new_batches)
        except BaseException:
            await self._release()
            raise
        self.buffer.arrived.set()  # commits soon what restoring has changed
        return committed

    def start(self) -> None:
        """Begin to run cycles."""
        self._runner = asyncio.ensure_future(self._run())
        self._runner.add_done_callback(self._on_end)

    def _on_end(self, runner: asyncio.Task[None]) -> None:
        """Stop the worker on an error that the task does not handle, such as a broken invariant."""
        if runner.cancelled():
            if not runner.cancelling():
                self._crash(CancelledByNobody(self.work.name))
        elif (error := runner.exception()) is not None:
            self._crash(error)

    async def close(self) -> None:
        """Finish the current cycle and its commit, then close the producer and the store.

        Raises:
            StateLost: the commit has shown that the changelog lacks rows.
        """
        try:
            async with self._cycle_lock:
                if self._runner is not None:
                    self._runner.cancel()
                    await asyncio.wait({self._runner})
                with suppress(KafkaError, TimeoutError):
                    await self._commits.wait()
                    await self._commit_last()
        finally:
            self.trouble = self.trouble or CLOSED  # nobody may read its state any more
            await self._release()

    async def _commit_last(self) -> None:
        """Commit what has waited for a later batch. A broker that is away may delay it for long.

        A task that has refused its state commits nothing: the next start must refuse it, too.
        """
        if self._producer is None or self.trouble:
            return
        if self._runner is not None and not self._runner.cancelled():  # an error has stopped it
            return
        pending = self.work.take_commit(self._clock.wall_ms(), is_last=True)
        if pending is not None:
            self._commits.submit(self._commit(pending), self.buffer.arrived.set)
            async with self._clock.timeout(_LAST_COMMIT_TIMEOUT_S):
                await self._commits.wait()

    async def _release(self) -> None:
        """Abandon the commit in flight, and close the producer and the store."""
        producer, self._producer = self._producer, None
        await self._commits.cancel()
        if producer is not None:
            with suppress(KafkaError, TimeoutError):
                async with self._clock.timeout(_STOP_TIMEOUT_S):
                    await producer.stop()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    # --- cycles ----------------------------------------------------------------------------------

    def offer(self, batch: Batch) -> None:
        """Add a fetched batch to the next cycle."""
        self.buffer.offer(batch)

    def check_inputs(self, why: str) -> None:
        """Compare the positions with the log that exists, before anything else is processed."""
        self._suspicion = why
        self.buffer.arrived.set()

    async def _run(self) -> None:
        while True:
            # Not by wait_for: in Python 3.11 it loses a cancellation that comes with the event.
            with suppress(TimeoutError):
                async with self._clock.timeout(0 if self._left else self.work.poll_timeout_s()):
                    await self.buffer.arrived.wait()
            await self.run_cycle()

    @property
    def has_left(self) -> bool:
        """Whether the last cycle has left something for the next (R114)."""
        return bool(self._left) or self.work.is_full

    async def run_cycle(self) -> None:
        """Run one cycle. If a commit has failed, reopen the partition instead."""
        try:
            async with self._cycle_lock:
                await self._cycle()
        except (TimeoutError, KafkaError) as error:
            await self._reopen(error)

    async def _cycle(self) -> None:
        """Decide the next records, wait for the previous commit, and submit this one."""
        if self._commits.is_done:
            await self._commits.wait()
        if self._suspicion:
            await self._commits.wait()
            raise InputChanged(self._suspicion)
        wall_ms = self._clock.wall_ms()
        self.work.begin_cycle(wall_ms)
        if self.work.is_full:
            await self._let_others_run()
        else:
            await self._decide_batch()
        await self._commits.wait()
        pending = self.work.take_commit(wall_ms)
        if pending is not None:
            self._commits.submit(self._commit(pending), self.buffer.arrived.set)
        if not self._left:  # a pause or a resume goes back in the log, so no record may be left
            await self.work.end_cycle()

    async def _decide_batch(self) -> None:
        """Decide what is there, and what arrives while the previous batch is still in flight.

        So a record waits for the commit of at most one batch before its own, and batches are small
        while the brokers keep up. A backlog makes them large, up to the bounds of a batch.
        """
        started_s = self._clock.monotonic_s()
        self.buffer.begin_batch()
        await self._decide()
        self._begin_next()
        while not (self._left or self._suspicion or self.work.is_full or self.buffer.is_batch_full):
            if self._commits.is_running:
                if self.buffer.records:
                    await self._decide()
                    self._begin_next()
                else:
                    self.buffer.arrived.clear()
                    await self._commits.wait_or(self.buffer.arrived)
            elif (
                self.buffer.records >= BACKLOG_RECORDS
                and self._clock.monotonic_s() - started_s < MAX_DECIDE_S
            ):
                await self._decide()
            else:
                return

    def _begin_next(self) -> None:
        """Prepare the transaction of this batch while the one before it commits."""
        if self._commits.is_running and (outputs := self.work.decided_outputs()):
            assert self._producer is not None
            self._producer.begin_next(outputs)

    async def _decide(self) -> None:
        """Decide one fetch; what does not fit into the batch is left for the next (R114)."""
        wall_ms = self._clock.wall_ms()
        records = self._left or self.buffer.take()
        self._left = []
        size = self._settings.slice_records
        for start in range(0, len(records), size):
            some = iter(records[start : start + size])
            self.work.decide(some, wall_ms)
            await self._let_others_run()
            if self.work.is_full:
                self._left = [*some, *records[start + size :]]
                break
        if not self._left:
            self.work.skip_to(self.buffer.taken_to)

    async def _let_others_run(self) -> None:
        for _ in range(self._settings.yields_per_slice):
            await asyncio.sleep(0)

    async def _commit(self, pending: PendingCommit) -> None:
        """Commit one batch, then apply it to the store."""
        assert self._producer is not None
        outputs, writes, offsets, wall_ms, note = pending
        end = await self._producer.commit(outputs, writes.changelog, offsets, note)
        if self._store is not None:
            self._check_end(self._store, end - len(writes.changelog))
            self._store.apply(writes.store, end, wall_ms)
        self.work.settle()

    def _check_end(self, store: PartitionStore, begin: int) -> None:
        """Check that the changelog still has what the store has.

        Args:
            store: not yet with the rows of the last commit.
            begin: the changelog offset of the first of them.

        Raises:
            StateLost: the changelog has lost its end, or was created again.
        """
        applied, _ = store.applied
        if begin < applied:
            raise StateLost(
                f"{self.work.name}: the changelog had its rows up to offset {applied}, and has "
                f"just got new ones at {begin}: it has lost its end, or was deleted and created "
                f"again. {store.path} may have the only copy of the rings, so it is left as it is. "
                "Restore the changelog"
            )

    async def _reopen(self, error: Exception) -> None:
        """Find out what the broker has, and continue from there."""
        name = self.work.name
        if isinstance(error, InputChanged):
            log.info("%s: %s; checking what can be read", name, error)
        else:
            log.warning("%s: the commit failed (%r); reopening the partition", name, error)
        is_fenced = isinstance(error, ProducerFenced)
        wait_s = self._settings.fenced_wait_s if is_fenced else RETRY_MIN_S
        self.trouble = FENCED if is_fenced else f"reopening after {error!r}"
        await self._release()
        while True:
            await self._clock.sleep(wait_s)
            try:
                self._suspicion = ""
                bounds = await self._read_bounds(self.work.tps)
                committed = await self._restore()
                self.work.check_inputs({tp.topic: at for tp, at in bounds.items()}, committed)
                break
            except (TimeoutError, KafkaError, OSError) as again:
                wait_s = min(wait_s * 2, RETRY_MAX_S)
                log.warning("%s: cannot reopen (%r); retrying in %.1f s", name, again, wait_s)
        self.trouble = ""
        self.buffer.clear()
        self._left = []
        reader = self._reader()
        positions = self.work.positions
        with suppress(IllegalStateError):  # reassigned meanwhile: the new assignment seeks
            for tp in self.work.tps:
                await reader.seek(tp, positions[tp.topic])
