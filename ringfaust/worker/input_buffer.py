"""Fetched batches that wait for a task, and the back-pressure they cause."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from faust.types import TP

from ringfaust.protocol.records import InRecord
from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.interfaces import InputReader

MAX_CYCLE_BYTES = 32 * 1024 * 1024
"""Values of one cycle. Large records make small cycles, which bounds the memory and the duration of
a transaction. A cycle may exceed it by one fetch."""


class InputBuffer:
    """Batches that wait for the next cycle of a task."""

    def __init__(self, max_records: int, reader: Callable[[], InputReader]) -> None:
        """`max_records`: of one cycle. A buffer with that many pauses its partitions."""
        self._max_records = max_records
        self._reader = reader
        self._batches: deque[tuple[Batch, int]] = deque()
        """Each with the bytes of its values."""
        self._records = 0
        self._bytes = 0
        self._paused: set[TP] = set()
        self.taken_to: dict[TP, int] = {}
        """Up to where the consumer had read when it fetched what the last `take` returned."""
        self.arrived = asyncio.Event()
        """Set when the task has something to do: a batch, or the end of a commit."""

    def offer(self, batch: Batch) -> None:
        """Add a fetched batch. Pauses its partition if the buffer is full."""
        size = sum(record.serialized_value_size for record in batch.records)
        self._batches.append((batch, size))
        self._records += len(batch.records)
        self._bytes += size
        if self._is_full() and batch.tp not in self._paused:
            self._paused.add(batch.tp)
            self._reader().pause(batch.tp)
        self.arrived.set()

    def take(self) -> list[InRecord]:
        """Remove the records of one cycle. Skips batches that are no longer current."""
        reader = self._reader()
        records: list[InRecord] = []
        self.taken_to = {}
        taken_bytes = 0
        while self._batches and len(records) < self._max_records and taken_bytes < MAX_CYCLE_BYTES:
            batch, size = self._batches.popleft()
            self._records -= len(batch.records)
            self._bytes -= size
            taken_bytes += size
            if reader.is_current(batch):
                records += batch.records
                self.taken_to[batch.tp] = batch.next_offset
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
        self._records = 0
        self._bytes = 0

    def _is_full(self) -> bool:
        return self._records >= self._max_records or self._bytes >= MAX_CYCLE_BYTES
