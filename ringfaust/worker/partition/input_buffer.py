"""Fetched batches that wait for a task, and the back-pressure they cause (R121)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from faust.types import TP

from ringfaust.protocol.decoder import held_bytes
from ringfaust.protocol.records import FetchedRecord
from ringfaust.worker.interfaces import Batch, InputReader

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Memory of the records of one batch, and of those that wait. Large records make small batches,
which bounds the size of a transaction, too. Both may exceed it by one fetch."""
FETCH_RECORDS = 4000
"""Most records of one fetch. They are decided in one go."""
_FETCHES = 3
"""How many may wait here, so that there is always a next one while a batch is decided."""


class InputBuffer:
    """Fetches that wait for the next batch of a task."""

    def __init__(self, max_records: int, reader: Callable[[], InputReader]) -> None:
        """`max_records`: of one batch; it may exceed that by one fetch."""
        self._max_records = max_records
        self._max_taken = min(max_records, FETCH_RECORDS)
        """How many are decided in one go."""
        self._max_waiting = _FETCHES * self._max_taken
        """A buffer with that many pauses its partitions."""
        self._reader = reader
        self._batches: dict[TP, deque[tuple[Batch, int]]] = {}
        """By partition, in the order in which they are taken; each with its bytes."""
        self.records = 0
        """How many wait."""
        self.held_bytes = 0
        """What they take."""
        self._batch_records = 0
        self._batch_bytes = 0
        self._paused: set[TP] = set()
        self.taken_to: dict[TP, int] = {}
        """Up to where the consumer had read when it fetched what the last `take` returned."""
        self.arrived = asyncio.Event()
        """Set when the task has something to do: a batch, or the end of a commit."""

    def offer(self, batch: Batch) -> None:
        """Add a fetched batch. Pauses its partition if the buffer is full."""
        size = held_bytes(batch.records)
        self._batches.setdefault(batch.tp, deque()).append((batch, size))
        self.records += len(batch.records)
        self.held_bytes += size
        if self._is_full() and batch.tp not in self._paused:
            self._paused.add(batch.tp)
            self._reader().pause(batch.tp)
        self.arrived.set()

    def begin_batch(self) -> None:
        """Count what is taken from now on as one batch."""
        self._batch_records = self._batch_bytes = 0

    @property
    def is_batch_full(self) -> bool:
        """Whether no more may be taken for this batch."""
        return self._batch_records >= self._max_records or self._batch_bytes >= MAX_BATCH_BYTES

    def take(self) -> list[FetchedRecord]:
        """Remove some records for the batch. Skips fetches that are no longer current.

        The topics take turns, so that acks do not wait behind a backlog of messages.
        """
        reader = self._reader()
        records: list[FetchedRecord] = []
        self.taken_to = {}
        taken_bytes = 0
        while self._batches and len(records) < self._max_taken and taken_bytes < MAX_BATCH_BYTES:
            tp = next(iter(self._batches))
            waiting = self._batches.pop(tp)
            batch, size = waiting.popleft()
            if waiting:
                self._batches[tp] = waiting  # behind the others
            self.records -= len(batch.records)
            self.held_bytes -= size
            taken_bytes += size
            if reader.is_current(batch):
                records += batch.records
                self.taken_to[batch.tp] = batch.next_offset
        self._batch_records += len(records)
        self._batch_bytes += taken_bytes
        if self._paused and not self._is_full():
            for tp in self._paused:
                reader.resume(tp)
            self._paused.clear()
        if not self._batches:
            self.arrived.clear()
        return records

    def clear(self) -> None:
        """Discard all batches. The next `take` resumes the partitions."""
        self._batches.clear()
        self.records = 0
        self.held_bytes = 0

    def _is_full(self) -> bool:
        return self.records >= self._max_waiting or self.held_bytes >= MAX_BATCH_BYTES
