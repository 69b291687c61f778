"""What has arrived for one loop, and the back-pressure it makes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from faust.types import TP

from ringfaust.hosts.faust.thread import Batch
from ringfaust.hosts.faust.transport import BatchConsumer
from ringfaust.wire.record import InRecord


class Inbox:
    """Batches that wait for their turn."""

    def __init__(self, most: int, reader: Callable[[], BatchConsumer]) -> None:
        """`most`: records of a turn; from so many on no more are asked for."""
        self._most = most
        self._reader = reader
        self._batches: deque[Batch] = deque()
        self._records = 0
        self._held: set[TP] = set()
        self.arrived = asyncio.Event()
        """There is something to take, or to look at."""

    def offer(self, batch: Batch) -> None:
        """Records have arrived. Above a batch's worth no more are asked for (back-pressure)."""
        self._batches.append(batch)
        self._records += len(batch.records)
        if self._records >= self._most and batch.tp not in self._held:
            self._held.add(batch.tp)
            self._reader().hold(batch.tp)
        self.arrived.set()

    def take(self) -> list[InRecord]:
        """The records of one turn."""
        reader = self._reader()
        records: list[InRecord] = []
        while self._batches and len(records) < self._most:
            batch = self._batches.popleft()
            self._records -= len(batch.records)
            if reader.is_current(batch):
                records += batch.records
        if self._held and self._records < self._most:
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
