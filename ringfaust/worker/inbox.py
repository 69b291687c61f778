"""What has arrived for one loop, and the back-pressure it makes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from faust.types import TP

from ringfaust.protocol.records import InRecord
from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.transport import BatchConsumer

MOST_BYTES = 32 * 1024 * 1024
"""Values of a turn: large records make small turns, so that memory and a transaction's time are
bounded; a turn may pass it by one fetch."""


class Inbox:
    """Batches that wait for their turn."""

    def __init__(self, most: int, reader: Callable[[], BatchConsumer]) -> None:
        """`most`: records of a turn; from so many on no more are asked for."""
        self._most = most
        self._reader = reader
        self._batches: deque[tuple[Batch, int]] = deque()
        """Each with the bytes of its values."""
        self._records = 0
        self._bytes = 0
        self._held: set[TP] = set()
        self.arrived = asyncio.Event()
        """There is something to take, or to look at."""

    def offer(self, batch: Batch) -> None:
        """Records have arrived. Above a batch's worth no more are asked for (back-pressure)."""
        size = sum(record.serialized_value_size for record in batch.records)
        self._batches.append((batch, size))
        self._records += len(batch.records)
        self._bytes += size
        if self._is_full() and batch.tp not in self._held:
            self._held.add(batch.tp)
            self._reader().hold(batch.tp)
        self.arrived.set()

    def take(self) -> list[InRecord]:
        """The records of one turn."""
        reader = self._reader()
        records: list[InRecord] = []
        taken_bytes = 0
        while self._batches and len(records) < self._most and taken_bytes < MOST_BYTES:
            batch, size = self._batches.popleft()
            self._records -= len(batch.records)
            self._bytes -= size
            taken_bytes += size
            if reader.is_current(batch):
                records += batch.records
        if self._held and not self._is_full():
            for tp in self._held:
                reader.go_on(tp)
            self._held.clear()
        if not self._batches:
            self.arrived.clear()
        return records

    def clear(self) -> None:
        """Forget what has arrived; `take` asks for more."""
        self._batches.clear()
        self._records = 0
        self._bytes = 0

    def _is_full(self) -> bool:
        return self._records >= self._most or self._bytes >= MOST_BYTES
