"""One partition, owned: its store, its road, and what its turns do.

Decide, commit, apply (architecture 5). Each turn of the loop

1. takes what has arrived, up to a batch, and does it in memory (decide);
2. writes changelog, outputs and offsets in one Kafka transaction (commit);
3. applies the same changes to RocksDB, with the changelog offset they stand for (apply).

While 2 and 3 are under way the next batch is decided, see `loop`. If 2 fails, the store is brought
up to date by the changelog.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from faust.types import TP

from ringfaust.core.state import State
from ringfaust.kafka.names import partition_transactional_id
from ringfaust.kafka.transactions import RecordBatches
from ringfaust.processor.processor import POSITIONS_KEY, Outputs, Processor, Writes, read_positions
from ringfaust.processor.row_store import ByteStore
from ringfaust.protocol.records import InRecord, Role
from ringfaust.worker.changelog import replay
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.input_positions import Bounds, start_positions
from ringfaust.worker.pausing import Pulling
from ringfaust.worker.store import RocksStore
from ringfaust.worker.task import Loop

log = logging.getLogger(__name__)

_CAUGHT_UP_CHECK_S = 0.2
"""How often an idle partition that has just been assigned looks whether it has read its log."""


class Partition(Loop):
    """See the head of this file."""

    def __init__(self, number: int, input_topics: frozenset[str], shared: WorkerContext) -> None:
        super().__init__(
            number, input_topics, partition_transactional_id(shared.application, number), shared
        )
        self._ends: Mapping[str, int] | None = None
        """By topic: end of the log that was there at the assignment; None once it has been read."""
        self._begins: Mapping[str, int] = {}
        """By topic: where to begin if nothing of it has been committed."""
        self._store: RocksStore | None = None
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

    async def _resume(self, committed: Mapping[str, int]) -> None:
        """Bring the store up to date."""
        assert self._committer is not None
        self._store = await self._open_store()
        positions = {**self._begins, **read_positions(self._store.get(POSITIONS_KEY))}
        state = State(ByteStore(self._store), self._shared.catalog)
        self._road = Processor(
            self._shared.processor_config, state, positions, self._committer.gather
        )
        self._pulling = Pulling(self.number, self._road, self._shared.reader)
        self._road.start()
        self._inbox.arrived.set()  # so that what this has brought is committed soon

    async def _open_store(self) -> RocksStore:
        path = self._shared.data_dir / f"partition-{self.number}"
        store = RocksStore(path, self._shared.cache)
        if not await self._replay(store):
            log.warning("partition %d: %s is out of date; rebuilding it", self.number, path)
            store.wipe()
            store = RocksStore(path, self._shared.cache)
            await self._replay(store)
        return store

    async def _replay(self, store: RocksStore) -> bool:
        """See `replay`; a store that cannot be brought up to date is closed."""
        shared = self._shared
        topic = shared.topics[Role.CHANGELOG]
        try:
            return await replay(store, topic, self.number, dict(shared.client), shared.tombstone_ms)
        except BaseException:
            store.close()
            raise

    def _release(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _positions(self) -> Mapping[str, int]:
        return self._road.positions

    # --- turns -----------------------------------------------------------------------------------

    def _patience_s(self) -> float | None:
        if self._ends is not None:
            return _CAUGHT_UP_CHECK_S
        if self._shared.processor_config.log_is_clock:
            return None
        wake_ms = self._road.state.next_wake_ms()
        if wake_ms is None:
            return None
        return max(wake_ms / 1000 - time.time(), self._next_tick - time.monotonic(), 0.0)

    def _decide(self, records: list[InRecord], wall_ms: int) -> None:
        self._road.take(records, wall_ms)

    async def _do_turn(self, records: list[InRecord], wall_ms: int) -> None:
        road = self._road
        before = dict(road.positions)
        self._tick(wall_ms)
        await self._decide_all(records, wall_ms)
        await self._landed()
        offsets = {t: at for t, at in road.positions.items() if before.get(t) != at}
        outputs = road.outputs()
        if outputs or offsets:
            self._launch(self._fly(outputs, road.writes(), offsets, wall_ms))
        await self._pulling.see_to()
        if self._ends is not None and not records:
            await self._look_whether_caught_up(self._ends)

    async def _fly(
        self,
        outputs: Outputs[RecordBatches],
        writes: Writes,
        offsets: Mapping[str, int],
        wall_ms: int,
    ) -> None:
        """Commit, then apply."""
        assert self._committer is not None and self._store is not None
        end = await self._committer.commit(outputs, writes.changelog, offsets)
        self._store.apply(writes.store, end, wall_ms)
        self._road.state.settle(self._shared.cache_bytes)

    def _tick(self, wall_ms: int) -> None:
        """Let time act, but never before the log that was there has been read (architecture 4)."""
        if self._ends is not None or self._shared.processor_config.log_is_clock:
            return
        wake_ms = self._road.state.next_wake_ms()
        if wake_ms is not None and wake_ms <= wall_ms and time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + self._shared.tick_ms / 1000
            self._road.tick(wall_ms)

    async def _look_whether_caught_up(self, ends: Mapping[str, int]) -> None:
        reader = self._shared.reader()
        for topic, end in ends.items():
            if topic in self._road.blocked:
                continue  # the rest of it is not to be read now, and time must not wait for that
            progress = await reader.progress(TP(topic, self.number))
            if progress is None or progress.position < end:
                return
            if self._road.positions.get(topic, 0) < progress.taken:
                return
        self._ends = None
