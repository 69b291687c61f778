"""The task of one partition: take the fetched records, decide, commit, apply.

The next batch is decided while the previous one commits, and is submitted once that commit
succeeds. So at most one batch is in flight, and the many small waits of a transaction cost no time.
Deciding runs in slices, between which the event loop serves the network.

If a commit fails, nobody knows whether the broker has it. The task then discards everything in
memory and reopens the partition: starting the producer settles the open transaction, and only then
does the task read where to resume.

After an error that is not passing, the reopened partition commits each record by itself, unless its
store was damaged. If there is such an error again, the task stops, and knows where (R123).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress

from aiokafka.errors import IllegalStateError, KafkaError, ProducerFenced
from faust.types import TP

from ringfaust.errors import ProtocolError
from ringfaust.kafka.offsets import CommittedOffset
from ringfaust.protocol.records import FetchedRecord
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import (
    Batch,
    Bounds,
    CancelledByNobody,
    InputChanged,
    PartitionStore,
    PendingCommit,
    StateLost,
    StopsWorker,
    StoreSource,
    TaskProducer,
    Work,
)
from ringfaust.worker.partition.input_buffer import InputBuffer
from ringfaust.worker.partition.standstill import Standstill
from ringfaust.worker.partition.stopped import Stopped, is_passing
from ringfaust.worker.store.changelog import check_end
from ringfaust.worker.store.rocks import StoreDamaged

log = logging.getLogger(__name__)

RETRY_MIN_S = 0.5
"""The first wait before another attempt to open a partition. Each further wait is twice as long."""
RETRY_MAX_S = 15.0
_STOP_TIMEOUT_S = 10.0
_PROBE_S = 0.25
"""How often a partition that is handed over looks whether its next owner has shut it out."""
_LAST_COMMIT_TIMEOUT_S = 5.0
RECOVERING = "recovering"
FENCED = "given up, because another worker may own it now"
CLOSED = "closed"
BACKLOG_RECORDS = 2000
"""With so many records waiting, a larger batch is better than an earlier commit."""
MAX_DECIDE_S = 0.25
"""But a batch that could be committed is not kept back for longer than this and one fetch."""

_Found = tuple[Mapping[str, Bounds], Mapping[str, CommittedOffset]]
"""By topic: the log that exists, and the offset that the group has."""


def _waits_s() -> Iterator[float]:
    wait_s = RETRY_MIN_S
    while True:
        yield wait_s
        wait_s = min(wait_s * 2, RETRY_MAX_S)


class Task:
    """Feeds one `Work`: owns its producer, its store and the commit in flight."""

    def __init__(
        self,
        work: Work,
        context: WorkerContext,
        source: StoreSource,
        open_producer: Callable[[], TaskProducer],
    ) -> None:
        """Connect to nothing yet.

        Args:
            work: what to do with the records.
            context: what the tasks of the worker share.
            source: opens the store.
            open_producer: creates the transactional producer, not started.
        """
        self.work = work
        self.buffer = InputBuffer(context.task_settings.batch_records, context.reader)
        self._context = context
        self._clock = context.clock
        self._settings = context.task_settings
        self._source = source
        self._open_producer = open_producer
        self._commits = context.new_commit_slot()
        self._store: PartitionStore | None = None
        self._producer: TaskProducer | None = None
        self._runner: asyncio.Task[None] | None = None
        self._left: list[FetchedRecord] = []
        """Records that did not fit into the last cycle (R114)."""
        self._cycle_lock = asyncio.Lock()
        self._suspicion: KafkaError | None = None
        """What is wrong with an input, as far as the reader knows."""
        self._is_started = False
        """Whether the work has its start positions."""
        self._unread: frozenset[TP] = frozenset()
        """What it does not read yet, because nobody has looked what is there."""
        self._looking: asyncio.Task[_Found] | None = None
        """Looks that up."""
        self._is_leaving = False
        """Whether the group has given the partition to another worker."""
        self._next_probe_s = 0.0
        """When it looks next whether that one has opened it."""
        self.failure: Exception | None = None
        """The last error that was not passing; None: what it held up is passed."""
        self._suspects: dict[str, int] = {}
        """By topic: up to where that error may come again."""
        self._alone: FetchedRecord | None = None
        """The record that is being decided and committed by itself."""
        self._standstill = Standstill(work, context)
        self.trouble = RECOVERING
        """Why it does not run cycles; empty: it does."""

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self) -> None:
        """Take the partition over from an earlier owner, and read its inputs.

        If that fails, the task tries again, or stops.

        Raises:
            StopsWorker: the worker must not run.
        """
        try:
            await self._take_over()
        except StopsWorker:
            raise
        except Exception as error:
            await self._recover(error)
        else:
            await self._read_on()

    async def _take_over(self, *, is_fenced: bool = False) -> None:
        """Load the state, as soon as this worker is sure to own the partition (R126)."""
        if not self._is_started:
            await self._source.catch_up()  # may take long
        # Starting the producer fences the present owner.
        await self._context.reader().prove_membership(is_fenced=is_fenced)
        self._suspicion = None
        await self._load()

    async def _load(self) -> None:
        """Settle the open transaction, load the committed state, and compare it with the log."""
        self._producer = self._open_producer()
        try:
            await self._producer.start()
            # Read before the end of the changelog, so that they are never newer than the state.
            committed = await self._committed(self.work.tps)
            self._store = await self._source.open(committed)
            before = self.work.tps
            self.work.restore(self._store, committed, self._producer.new_batches)
            # A commit that seemed to fail may have changed the routes after all (R128).
            if gone := before - self.work.tps:
                self._context.reader().stop_reading(gone)
            if new := self.work.tps - before:
                committed = {**committed, **await self._committed(new)}
            # Not before: the old owner has read on until it was shut out, past an earlier end.
            bounds = await self._bounds(self.work.tps)
            self.work.check_inputs(bounds, committed)
            self._suspect_until(bounds)
        except BaseException:
            await self._release()
            raise
        self._is_started = True
        self.buffer.arrived.set()  # commits soon what restoring has changed

    def _suspect_until(self, bounds: Mapping[str, Bounds]) -> None:
        """Do not wait for what a topic lost when it was truncated or created again."""
        for topic in bounds.keys() & self._suspects.keys():
            self._suspects[topic] = min(self._suspects[topic], bounds[topic].end)

    async def _bounds(self, tps: frozenset[TP]) -> Mapping[str, Bounds]:
        """By topic, the log that exists."""
        found = await self._context.read_bounds(tps)
        return {tp.topic: at for tp, at in found.items()}

    async def _committed(self, tps: frozenset[TP]) -> Mapping[str, CommittedOffset]:
        """By topic, the offset that the group has."""
        found = await self._context.group_offsets(tps)
        return {topic: at for (topic, _), at in found.items()}

    async def _look_up(self, tps: frozenset[TP]) -> _Found:
        waits_s = _waits_s()
        while True:
            try:
                return await self._bounds(tps), await self._committed(tps)
            except Exception as error:
                if not is_passing(error):
                    raise
                log.warning("%s: cannot look up %s (%r)", self.work.name, sorted(tps), error)
            await self._clock.sleep(next(waits_s))

    async def _read_on(self) -> None:
        """Serve the partition, from its positions on."""
        self.trouble = ""
        self.buffer.clear()
        self._left = []
        paused = self.work.paused_topics
        await self._seek({tp for tp in self.work.tps - self._unread if tp.topic not in paused})

    async def _seek(self, tps: Collection[TP]) -> None:
        """Read these, from their positions on."""
        reader, positions = self._context.reader(), self.work.positions
        for tp in tps:
            # One that is assigned to another worker is closed soon.
            with suppress(IllegalStateError):
                if tp.topic in positions:
                    await reader.seek(tp, positions[tp.topic])

    def start(self) -> None:
        """Open the partition if nobody has done so yet, and begin to run cycles."""
        self._runner = asyncio.ensure_future(self._run())
        self._runner.add_done_callback(self._on_end)

    def _on_end(self, runner: asyncio.Task[None]) -> None:
        """Stop the worker on an error that concerns all of it."""
        if runner.cancelled():
            if not runner.cancelling():
                self._context.crash(CancelledByNobody(self.work.name))
        elif (error := runner.exception()) is not None:
            self._context.crash(error)

    async def hand_over(self) -> None:
        """Serve the partition until its next owner shuts this one out, so that nobody waits (R124).

        Returns then, after any other error, or at once if nothing is served. Close it afterwards.
        """
        self._is_leaving = True
        self.buffer.arrived.set()  # looks from now on, even if nothing is to be done
        if self._runner is not None and not self.trouble:
            await asyncio.wait({self._runner})

    @property
    def is_handed_over(self) -> bool:
        """Whether its next owner has shut it out, or it has failed meanwhile."""
        return self._is_leaving and bool(self.trouble)

    async def close(self) -> None:
        """Finish the current cycle and its commit, then close the producer and the store.

        A commit that does not end is abandoned: brokers that are away must not keep a worker.
        """
        try:
            await self._end_cycles()
            await self._commit_last()
        except Exception as error:
            if not is_passing(error):
                log.error("%s: the last commit failed (%r)", self.work.name, error)
        finally:
            self.trouble = self.trouble or CLOSED  # nobody may read its state any more
            await self._release()
            await self._standstill.close()

    async def _end_cycles(self) -> None:
        """Let the commit in flight end, and the current cycle, which may wait for it."""
        try:
            async with self._clock.timeout(_LAST_COMMIT_TIMEOUT_S), self._cycle_lock:
                await self._commits.wait()
        finally:
            if self._runner is not None:
                self._runner.cancel()
                await asyncio.wait({self._runner})

    async def _commit_last(self) -> None:
        """Commit what has waited for a later batch. A broker that is away may delay it for long.

        A task that has refused its state commits nothing: the next start must refuse it, too.
        """
        has_failed = self._runner is not None and not self._runner.cancelled()
        if self._producer is None or self.trouble or has_failed:
            return
        if self._submit(self._clock.wall_ms(), is_last=True):
            async with self._clock.timeout(_LAST_COMMIT_TIMEOUT_S):
                await self._commits.wait()

    async def _release(self) -> None:
        """Abandon the commit in flight, and close the producer and the store."""
        self._look_for(frozenset())
        producer, self._producer = self._producer, None
        await self._commits.cancel()
        if producer is not None:
            with suppress(KafkaError, TimeoutError):
                async with self._clock.timeout(_STOP_TIMEOUT_S):
                    await producer.stop()
        self._store = None
        self._source.close()

    # --- cycles ----------------------------------------------------------------------------------

    def offer(self, batch: Batch) -> None:
        """Add a fetched batch to the next cycle. A task that cannot run cycles seeks later."""
        if self.trouble:
            self._context.reader().pause_until_seek(batch.tp)
        else:
            self.buffer.offer(batch)

    def give(self, topics: frozenset[str]) -> None:
        """Let it read other topics, from the end of the present cycle on."""
        self.work.give(topics)
        self.buffer.arrived.set()

    def check_inputs(self, why: KafkaError) -> None:
        """Before anything else is processed, compare the positions with the log that exists.

        If `why` says that an input may not be read, stop.
        """
        self._suspicion = why
        self.buffer.arrived.set()

    async def _run(self) -> None:
        if self.trouble == RECOVERING:
            await self.open()
        while not self.is_handed_over:
            if self.stopped is not None:
                await self.wait_for_order()
            else:
                await self._try(self._wait_for_work)
                await self.run_cycle()

    async def _wait_for_work(self) -> None:
        timeout_s = 0 if self._left else self.work.poll_timeout_s()
        if self._is_leaving:
            until_probe_s = self._until_probe_s()
            timeout_s = until_probe_s if timeout_s is None else min(timeout_s, until_probe_s)
        # Not by wait_for: in Python 3.11 it loses a cancellation that comes with the event.
        with suppress(TimeoutError):
            async with self._clock.timeout(timeout_s):
                await self.buffer.arrived.wait()

    def _until_probe_s(self) -> float:
        """How long until it looks whether its next owner has shut it out."""
        return max(self._next_probe_s - self._clock.monotonic_s(), 0.0)

    @property
    def has_left(self) -> bool:
        """Whether the last cycle has left something for the next (R114)."""
        return bool(self._left) or self.work.is_full

    async def run_cycle(self) -> None:
        """Run one cycle. If it or a commit fails, reopen the partition instead, or stop."""
        if self.stopped is None:
            await self._try(self._locked_cycle)

    async def _locked_cycle(self) -> None:
        async with self._cycle_lock:
            if self.work.has_other_inputs:
                await self._change_inputs()
            if self._looking is not None and self._looking.done():
                await self._read_new(self._looking.result())
            if self.failure is None:
                await self._cycle()
            elif isinstance(self.failure, StoreDamaged):  # no record's fault
                await self._cycle()
                await self._commits.wait()
                await self._look_back()
            else:
                await self._careful_cycle()

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except StopsWorker:
            raise
        except Exception as error:
            await self._recover(error)

    async def _cycle(self) -> None:
        """Decide the next records, wait for the previous commit, and submit this one."""
        if self._commits.is_done:
            await self._commits.wait()
        if self._suspicion:
            await self._commits.wait()
            raise self._suspicion
        wall_ms = self._clock.wall_ms()
        self.work.begin_cycle(wall_ms)
        if self.work.is_full:
            await self._let_others_run()
        else:
            await self._decide_batch()
        await self._commits.wait()
        self._submit(wall_ms)
        if not self._left:  # a pause or a resume goes back in the log, so no record may be left
            await self.work.end_cycle()

    async def _change_inputs(self) -> None:
        """Read other topics from here on. The partition stays open meanwhile (R128)."""
        await self._commits.wait()
        before = self.work.tps - self._unread
        if not self.work.take_up_inputs():
            return
        self._context.reader().stop_reading(before - self.work.tps)
        self._look_for(self.work.tps - before)
        await self._read_on()

    def _look_for(self, tps: frozenset[TP]) -> None:
        """Look up where to begin with these, and with no others.

        That takes several connections, so the other topics are read meanwhile.
        """
        if self._looking is not None:
            self._looking.cancel()
        self._unread, self._looking = tps, None
        if tps:
            self._looking = asyncio.ensure_future(self._look_up(tps))
            self._looking.add_done_callback(lambda _: self.buffer.arrived.set())

    async def _read_new(self, found: _Found) -> None:
        """Begin with what was looked up."""
        await self._commits.wait()
        self.work.check_inputs(*found)
        self._suspect_until(found[0])
        new, self._unread, self._looking = self._unread, frozenset(), None
        await self._seek(new)

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
        producer = self._producer
        if producer and producer.begins_early and (outputs := self.work.decided_outputs()):
            producer.begin_next(outputs)

    async def _decide(self) -> None:
        """Decide one fetch; what does not fit into the batch is left for the next (R114)."""
        wall_ms = self._clock.wall_ms()
        records = self._left or self.buffer.take()
        self._left = []
        size = self._settings.slice_records
        for start in range(0, len(records), size):
            some = records[start : start + size]
            while some and not self.work.is_full:  # a question ends each round but the last (R122)
                rest = iter(some)
                self.work.decide(rest, wall_ms)
                await self._let_others_run()
                some = [*rest]
            if self.work.is_full:
                self._left = [*some, *records[start + size :]]
                break
        if not self._left:
            self.work.skip_to(self.buffer.taken_to)

    async def _let_others_run(self) -> None:
        for _ in range(self._settings.yields_per_slice):
            await asyncio.sleep(0)

    # --- the commit ------------------------------------------------------------------------------

    def _submit(self, wall_ms: int, *, is_last: bool = False) -> bool:
        """Begin the commit of what was decided; False if there is nothing to commit."""
        # 1. Take what was decided. From here on the next batch can be decided.
        is_probe = self._is_leaving and self._until_probe_s() == 0
        pending = self.work.take_commit(wall_ms, is_last=is_last, is_probe=is_probe)
        if is_probe:
            self._next_probe_s = self._clock.monotonic_s() + _PROBE_S
        if pending is not None:
            self._commits.submit(self._commit(pending), self.buffer.arrived.set)
        return pending is not None

    async def _commit(self, pending: PendingCommit) -> None:
        """Commit one batch. After an error nobody knows how far it came: see `_reopen`."""
        assert self._producer is not None
        outputs, writes, offsets, wall_ms, metadata, _ = pending
        began_s = self._clock.monotonic_s()
        # 2. Write changelog, outputs and offsets, in one transaction.
        end = await self._producer.commit(outputs, writes.changelog, offsets, metadata)
        # 3. Apply the same rows to the store, with the changelog offset after them.
        if self._store is not None:
            check_end(self.work.name, self._store, end - len(writes.changelog))
            self._store.apply(writes.store, end, wall_ms, is_only_copy=writes.has_more)
        # 4. Drop from memory what the store has now; log, count and trace the commit.
        self.work.committed(pending, self._clock.monotonic_s() - began_s)

    # --- after a failure -------------------------------------------------------------------------

    async def _careful_cycle(self) -> None:
        """Commit what is due by itself, and then one record by itself."""
        self._alone = None
        if self._suspicion:
            raise self._suspicion
        self.work.begin_cycle(self._clock.wall_ms())
        await self._commit_alone()
        if self.work.is_full or self.work.has_other_inputs:
            return  # a large command continues before any record; or it was an `apply` that ended
        if (skipped := self._standstill.skipped) is not None:
            await self._skip(*skipped)
        else:
            await self._decide_one()
        await self._look_back()
        if not self._left:
            await self.work.end_cycle()

    async def _look_back(self) -> None:
        """Forget the failure once everything that it held up is committed."""
        positions, paused = self.work.positions, self.work.paused_topics
        awaited = {tp.topic for tp in self.work.tps if tp.topic not in paused}
        if all(positions.get(each, 0) >= self._suspects.get(each, 0) for each in awaited):
            self.failure, self._suspects = None, {}
        await self._standstill.look(is_over=self.failure is None or self._standstill.is_recordless)

    async def _decide_one(self) -> None:
        if records := self._left or self.buffer.take():
            self._alone, *self._left = records
            self.work.decide(iter([self._alone]), self._clock.wall_ms())
        if not self._left:
            self.work.skip_to(self.buffer.taken_to)
        await self._commit_alone()

    async def _skip(self, record: FetchedRecord, why: ProtocolError) -> None:
        """Move the record to the dead topic at which the task has stopped."""
        if self._standstill.is_topic_new:
            await self._standstill.end(f"{record.topic} was created again: the record is gone")
            return
        self._alone = record
        self.work.skip(record, why, self._clock.wall_ms())
        self._standstill.is_committing = True
        await self._commit_alone()

    async def _commit_alone(self) -> None:
        self._submit(self._clock.wall_ms())
        await self._commits.wait()
        self._alone = None

    async def _recover(self, error: Exception) -> None:
        """Find out what the broker has and continue from there, or stop."""
        name = self.work.name
        if self._is_leaving:
            log.info("%s: handed over (%r)", name, error)
            self.trouble = FENCED
            return
        if self._is_final(error):
            await self._stop(error)
            return
        if isinstance(error, InputChanged):
            log.info("%s: %s; checking what can be read", name, error)
        else:
            log.warning("%s: the commit failed (%r); reopening the partition", name, error)
        is_fenced = isinstance(error, ProducerFenced)
        self.trouble = FENCED if is_fenced else f"reopening after {error!r}"
        await self._reopen(is_fenced=is_fenced)

    def _is_final(self, error: Exception) -> bool:
        """Whether the task stops now. If not, it notes an error that is not passing."""
        if is_passing(error):
            return False
        if isinstance(error, StateLost) or error is self._suspicion:
            return True
        after_damage = isinstance(self.failure, StoreDamaged)
        if self.failure is not None and (isinstance(error, StoreDamaged) or not after_damage):
            return True
        self.failure = error
        return False

    async def _reopen(self, *, is_fenced: bool = False) -> None:
        """Open the partition again."""
        self._alone = None
        if self.failure is not None and self._is_started:
            taken = {tp.topic: to for tp, to in self.buffer.taken_to.items()}
            for topic, to in (*self.work.positions.items(), *taken.items()):
                self._suspects[topic] = max(to, self._suspects.get(topic, 0))
        await self._release()
        waits_s = _waits_s()
        while True:
            await self._clock.sleep(next(waits_s))
            try:
                await self._take_over(is_fenced=is_fenced)
                break
            except StopsWorker:
                raise
            except Exception as again:
                if self._is_final(again):
                    await self._stop(again)
                    return
                log.warning("%s: cannot reopen (%r); trying again", self.work.name, again)
        await self._standstill.look(is_over=False)  # the order may have been committed after all
        await self._read_on()

    @property
    def stopped(self) -> Stopped | None:
        """Why it serves the partition no more, until an operator says so (R123)."""
        return self._standstill.stopped

    async def _stop(self, error: Exception) -> None:
        self.trouble = f"stopping after {error!r}"
        await self._release()
        self.buffer.clear()
        self._left = []
        at = None if isinstance(error, StoreDamaged) else self._alone
        await self._standstill.begin(error, at)
        self.trouble = str(self.stopped)

    async def wait_for_order(self) -> None:
        """Wait until an operator says how to go on, and open the partition again."""
        stopped = self.stopped
        assert stopped is not None
        await self._standstill.wait_for_order()
        self.failure = stopped.error
        self.trouble = f"trying again after {stopped.error!r}"
        await self._reopen()
