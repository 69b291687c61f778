"""The store of a partition on this worker: whose turn it is, and how far it follows the changelog.

Whoever uses the store has its turn: the task that serves the partition, or a standby that only
follows the changelog. The next one waits, and finds the store open if it was left open. So nobody
opens a database that is open, in whatever order partitions come and go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

from faust.types import TP

from ringfaust.errors import RingfaustError
from ringfaust.kafka.offsets import CommittedOffset
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import PartitionStore
from ringfaust.worker.store.changelog import OWN_PACE, Pace, apply_records, open_store
from ringfaust.worker.store.rocks import StoreDamaged, StoreUnusable

_OPEN_GATE = nullcontext()
_NOTES = 10
"""How often an idle store notes that it is up to date, in the time that tombstones are kept."""


class NotOpen(RingfaustError):
    """The store cannot be followed as it is. The standby opens it again."""


class Follower:
    """The store of one partition. A worker has one of these for each, as long as it runs."""

    def __init__(self, number: int, context: WorkerContext) -> None:
        """Open nothing yet."""
        self.number = number
        self.changelog = TP(context.topics[Role.CHANGELOG], number)
        self.path = context.data_dir / f"partition-{number}"
        self._context = context
        self._store: PartitionStore | None = None
        self._turn = asyncio.Lock()
        self._offset: int | None = None
        self.next_offset = 0
        """Where a standby reads on; markers may be before it."""
        self._ended_ms = 0
        """When the changelog was last seen to end where the store does."""
        self._is_at_end = False
        """Whether it did when a standby last looked."""

    @property
    def offset(self) -> int | None:
        """Up to where the store has the changelog; None: it was never open. Any thread."""
        store = self._store
        return self._offset if store is None else store.applied[0]

    @property
    def is_free(self) -> bool:
        """Whether the store is open, and nobody has its turn."""
        return self._store is not None and not self._turn.locked()

    @property
    def is_lent(self) -> bool:
        """Whether a task serves the partition from the store."""
        return self._store is not None and self._turn.locked()

    @property
    def is_caught_up(self) -> bool:
        """Whether a standby has it, and had applied all of the changelog a moment ago."""
        return self.is_free and self._is_at_end

    # --- for the task that serves the partition --------------------------------------------------

    async def catch_up(
        self, pace: Pace, gate: AbstractAsyncContextManager[object] = _OPEN_GATE
    ) -> None:
        """Apply what the changelog has, and leave the store open. Waits for its turn.

        Args:
            pace: how to apply it.
            gate: entered once it has its turn.

        Raises:
            ForeignState: see `open_store`.
            StateLost: see `open_store`.
        """
        async with self._turn, gate:
            await self._open(pace)

    async def lend(self) -> PartitionStore:
        """Like `catch_up`, but returns the store. It is the caller's until `take_back`."""
        await self._turn.acquire()
        try:
            await self._open(OWN_PACE)
        except BaseException:
            self._turn.release()
            raise
        assert self._store is not None
        return self._store

    def take_back(self) -> None:
        """Close the store that was lent."""
        self._close()
        self._turn.release()

    async def _open(self, pace: Pace) -> None:
        if opened := self._store:
            with suppress(StoreDamaged, StoreUnusable):  # so does opening it, and says what to do
                self._note(opened)
            self._offset = opened.applied[0]  # reported until the store is open
        self._store = None
        self._store = await open_store(self.path, self.changelog, self._context, pace, opened)
        self.next_offset, self._ended_ms = self._store.applied
        self._is_at_end = False

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            self._offset = store.applied[0]
            store.close()

    # --- while nobody has its turn ---------------------------------------------------------------

    def follow(
        self, records: Sequence[FetchedRecord], next_offset: int, end_ms: int | None
    ) -> None:
        """Apply the next records of the changelog, if nobody else has the store.

        Args:
            records: from `next_offset` on, without a gap.
            next_offset: where to read on.
            end_ms: when a broker said that the changelog ends there; None: none did.

        Raises:
            NotOpen: a task that ended late has closed the store, or it may have missed that rows
                were deleted: open it again.
            StoreDamaged: the next opening sets it aside.
            StoreUnusable: the disk is full, for example.
        """
        if self._turn.locked():
            return
        store = self._store
        if store is None:
            raise NotOpen(f"{self.path} was closed by the task that had it")
        if records:
            if self._context.clock.wall_ms() - self._ended_ms > self._context.tombstone_ms:
                raise NotOpen(f"{self.path} was not up to date for too long")
            apply_records(store, records, self._ended_ms)
        self.next_offset, self._is_at_end = next_offset, end_ms is not None
        if end_ms is not None:
            self._ended_ms = max(self._ended_ms, end_ms)
            if self._ended_ms - store.applied[1] > self._context.tombstone_ms // _NOTES:
                self._note(store)

    def rest(self) -> None:
        """Close the store, if nobody else has it, and note how far it has come."""
        store = self._store
        if store is None or not self.is_free:
            return
        with suppress(StoreDamaged, StoreUnusable):  # the next opening reports it
            self._note(store)
        self._close()

    def _note(self, store: PartitionStore) -> None:
        """Note how far the store has come, and when the changelog ended there.

        If not, the store of a partition that nobody uses for long would be taken for one that has
        missed what was deleted meanwhile, and be rebuilt.
        """
        offset, ended_ms = store.applied
        if self.next_offset > offset or self._ended_ms > ended_ms:
            store.apply([], max(self.next_offset, offset), max(self._ended_ms, ended_ms))


class OwnStore:
    """The store of a task that serves a partition."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._has_begun = self._is_lent = False

    async def catch_up(self) -> None:
        """Apply the changelog as far as it goes now, and leave the store open.

        A standby has done that. `open` then has little to apply, and after the death of the owner
        everybody waits for it.
        """
        self._has_begun = True
        if not self._follower.is_caught_up:
            await self._follower.catch_up(OWN_PACE)

    async def open(self, _: Mapping[str, CommittedOffset]) -> PartitionStore:
        """Open the store, up to date."""
        store = await self._follower.lend()
        self._is_lent = True
        return store

    def close(self) -> None:
        """Close the store."""
        if self._is_lent:
            self._follower.take_back()
        elif self._has_begun:
            self._follower.rest()
        self._has_begun = self._is_lent = False
