"""One partition, owned: its store, its committer, its road, and the loop that feeds it.

Decide, commit, apply (architecture 5). Each turn of the loop

1. takes what has arrived, up to a batch, and does it in memory (decide);
2. writes changelog, outputs and offsets in one Kafka transaction (commit);
3. applies the same changes to RocksDB, with the changelog offset they stand for (apply).

While a batch is in flight (2 and 3) the next one is decided, in slices, so that the many small
waits of a transaction cost no time; it takes off when the one before has landed. So at most one
batch is in flight, and everything in memory beyond it is lost with it if it fails.

If 2 fails nobody knows what the broker has. Then all of it is let go and opened again, which
finds out: a new start of the producer settles the transaction, and the changelog tells the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.errors import IllegalStateError, KafkaError, ProducerFenced
from faust.types import TP
from rocksdict import Cache

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.hosts.faust.changelog import replay
from ringfaust.hosts.faust.commit import Committer, RecordBatches
from ringfaust.hosts.faust.inputs import Bounds, committed_offsets, start_positions
from ringfaust.hosts.faust.store import RocksStore
from ringfaust.hosts.faust.thread import Batch
from ringfaust.hosts.faust.transport import BatchConsumer
from ringfaust.hosts.road import POSITIONS_KEY, Outputs, Road, RoadMap, read_positions
from ringfaust.hosts.store import ByteStore
from ringfaust.wire.record import InRecord

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.5
RETRY_MOST_S = 15.0
_STOP_MOST_S = 10.0
_SLICE_RECORDS = 100
"""Records decided before the network has its turn: some 1.5 ms."""
_LOOKS = 5
"""Turns of the event loop it gets then: a request needs several to leave and to come back."""
_CAUGHT_UP_CHECK_S = 0.2
"""How often an idle partition that has just been assigned looks whether it has read its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all partitions of a worker share."""

    application: str
    topics: Mapping[str, str]
    """Our topics' names by role."""
    client: Mapping[str, Any]
    """Options of any Kafka client."""
    data_dir: Path
    cache: Cache
    cache_bytes: int
    """Bound of the decoded state of one partition."""
    batch_records: int
    tick_ms: int
    tombstone_ms: int
    """How long the changelog tells that a row was removed: older local state is rebuilt."""
    fenced_wait_s: float
    """How long who was fenced waits for the rebalance that tells why."""
    road_map: RoadMap
    catalog: Catalog
    reader: Callable[[], BatchConsumer]
    crash: Callable[[BaseException], None]
    """Stops the worker with this error."""


class Partition:
    """See the head of this file."""

    def __init__(self, number: int, input_topics: frozenset[str], shared: Shared) -> None:
        self.number = number
        self._topics = input_topics
        self._shared = shared
        self._inbox: deque[Batch] = deque()
        self._inbox_records = 0
        self._held: set[TP] = set()
        self._arrived = asyncio.Event()
        self._ends: Mapping[str, int] | None = None
        """By topic: end of the log that was there at the assignment; None once it has been read."""
        self._begins: Mapping[str, int] = {}
        """By topic: where to begin if nothing of it has been committed."""
        self._loop_task: asyncio.Task[None] | None = None
        self._committer: Committer | None = None
        self._store: RocksStore | None = None
        self._flight: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._next_tick = 0.0

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self, bounds: Mapping[str, Bounds]) -> Mapping[str, int]:
        """Take the partition over. Returns the position of each input topic.

        `bounds`: by topic, the log that is there now: time waits until it has been read.
        """
        committed = await self._open()
        positions = start_positions(self.number, self._road.positions, bounds, committed)
        self._begins = positions
        self._road.positions.update(positions)
        self._ends = {topic: bound.end for topic, bound in bounds.items()}
        return positions

    async def _open(self) -> Mapping[str, int]:
        """Settle what is open, bring the store up to date. Returns the group's offsets."""
        shared = self._shared
        self._committer = Committer(shared.application, self.number, shared.topics, shared.client)
        try:
            await self._committer.start()
            # Read before the changelog's end, so that they are never newer than the state.
            committed = await committed_offsets(
                shared.client, shared.application, self._topics, self.number
            )
            self._store = await self._open_store()
        except BaseException:
            await self._let_go()
            raise
        positions = {**self._begins, **read_positions(self._store.get(POSITIONS_KEY))}
        state = State(ByteStore(self._store), shared.catalog)
        self._road = Road(shared.road_map, state, positions, self._committer.gather)
        return committed

    async def _open_store(self) -> RocksStore:
        shared = self._shared
        path = shared.data_dir / f"partition-{self.number}"
        log_of = (shared.topics["changelog"], self.number, dict(shared.client), shared.tombstone_ms)
        store = RocksStore(path, shared.cache)
        try:
            if await replay(store, *log_of):
                return store
        except BaseException:
            store.close()
            raise
        log.warning("partition %d: %s is out of date; rebuilding it", self.number, path)
        store.wipe()
        store = RocksStore(path, shared.cache)
        try:
            await replay(store, *log_of)
        except BaseException:
            store.close()
            raise
        return store

    def start(self) -> None:
        """Begin to work."""
        self._loop_task = asyncio.ensure_future(self._loop())
        self._loop_task.add_done_callback(self._on_loop_end)

    def _on_loop_end(self, task: asyncio.Task[None]) -> None:
        """What the loop does not handle, a broken invariant say, stops the worker, loudly."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._shared.crash(error)

    async def close(self) -> None:
        """Finish the turn that is under way, and let go."""
        if self._loop_task is not None:
            async with self._turn:
                self._loop_task.cancel()
                with suppress(KafkaError, TimeoutError):
                    await self._landed()
            await asyncio.wait({self._loop_task})
        await self._let_go()

    async def _let_go(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.cancel()
            await asyncio.wait({flight})
        committer, self._committer = self._committer, None
        if committer is not None:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_STOP_MOST_S):
                    await committer.stop()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    # --- what arrives ----------------------------------------------------------------------------

    def offer(self, batch: Batch) -> None:
        """Records have arrived. Above a batch's worth no more are asked for (back-pressure)."""
        self._inbox.append(batch)
        self._inbox_records += len(batch.records)
        if self._inbox_records >= self._shared.batch_records and batch.tp not in self._held:
            self._held.add(batch.tp)
            self._shared.reader().hold(batch.tp)
        self._arrived.set()

    def _take_batch(self) -> list[InRecord]:
        reader = self._shared.reader()
        records: list[InRecord] = []
        while self._inbox and len(records) < self._shared.batch_records:
            batch = self._inbox.popleft()
            self._inbox_records -= len(batch.records)
            if reader.is_current(batch):
                records += batch.records
        if self._held and self._inbox_records < self._shared.batch_records:
            for tp in self._held:
                reader.go_on(tp)
            self._held.clear()
        if not self._inbox:
            self._arrived.clear()
        return records

    # --- the loop --------------------------------------------------------------------------------

    async def _loop(self) -> None:
        while True:
            await self._wait_for_work()
            try:
                async with self._turn:
                    if self._flight is not None and self._flight.done():
                        await self._landed()
                    await self._do_turn(self._take_batch())
            except (TimeoutError, KafkaError) as error:
                await self._open_again(error)

    async def _wait_for_work(self) -> None:
        timeout = None
        if self._ends is not None:
            timeout = _CAUGHT_UP_CHECK_S
        elif not self._shared.road_map.log_is_clock:
            wake_ms = self._road.state.next_wake_ms()
            if wake_ms is not None:
                wait = max(wake_ms / 1000 - time.time(), self._next_tick - time.monotonic(), 0.0)
                timeout = wait
        # Not by wait_for, which in Python 3.11 loses a cancellation that comes with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._arrived.wait()

    async def _do_turn(self, records: list[InRecord]) -> None:
        road = self._road
        wall_ms = time.time_ns() // 1_000_000
        before = dict(road.positions)
        self._tick(wall_ms)
        for start in range(0, len(records), _SLICE_RECORDS):
            road.take(records[start : start + _SLICE_RECORDS], wall_ms)
            for _ in range(_LOOKS):
                await asyncio.sleep(0)
        await self._landed()
        offsets = {t: at for t, at in road.positions.items() if before.get(t) != at}
        outputs = road.outputs()
        if outputs or offsets:
            flight = self._fly(outputs, road.writes(), offsets, wall_ms)
            self._flight = asyncio.ensure_future(flight)
            self._flight.add_done_callback(lambda _: self._arrived.set())
        if self._ends is not None and not records:
            await self._look_whether_caught_up(self._ends)

    async def _fly(
        self,
        outputs: Outputs[RecordBatches],
        writes: list[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        wall_ms: int,
    ) -> None:
        """Commit, then apply."""
        assert self._committer is not None and self._store is not None
        end = await self._committer.commit(outputs, writes, offsets)
        self._store.apply(writes, end, wall_ms)
        self._road.state.settle(self._shared.cache_bytes)

    async def _landed(self) -> None:
        """Wait until no batch is in flight; raises what the last one failed with."""
        flight, self._flight = self._flight, None
        if flight is not None:
            await flight

    def _tick(self, wall_ms: int) -> None:
        """Let time act, but never before the log that was there has been read (architecture 4)."""
        if self._ends is not None or self._shared.road_map.log_is_clock:
            return
        wake_ms = self._road.state.next_wake_ms()
        if wake_ms is not None and wake_ms <= wall_ms and time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + self._shared.tick_ms / 1000
            self._road.tick(wall_ms)

    async def _look_whether_caught_up(self, ends: Mapping[str, int]) -> None:
        reader = self._shared.reader()
        for topic, end in ends.items():
            progress = await reader.progress(TP(topic, self.number))
            if progress is None or progress.position < end:
                return
            if self._road.positions.get(topic, 0) < progress.taken:
                return
        self._ends = None

    async def _open_again(self, error: Exception) -> None:
        """After a failed commit: find out what the broker has, and go on from there.

        Who was fenced waits first: if another worker owns the partition now, the rebalance that
        tells so is on its way, and opening again would only fence the new owner in turn.
        """
        log.warning("partition %d: the commit failed (%r); opening it again", self.number, error)
        wait_s = self._shared.fenced_wait_s if isinstance(error, ProducerFenced) else RETRY_FIRST_S
        await self._let_go()
        while True:
            await asyncio.sleep(wait_s)
            try:
                await self._open()
                break
            except (TimeoutError, KafkaError, OSError) as again:
                wait_s = min(wait_s * 2, RETRY_MOST_S)
                log.warning(
                    "partition %d: still not (%r); next try in %.1f s", self.number, again, wait_s
                )
        self._inbox.clear()
        self._inbox_records = 0
        reader = self._shared.reader()
        with suppress(IllegalStateError):  # reassigned meanwhile: whoever comes next seeks
            for topic, offset in self._road.positions.items():
                await reader.seek(TP(topic, self.number), offset)
