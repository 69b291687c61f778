"""How many queues and messages the partitions hold: counted in the background, little by little.

Nobody counts that for each message. A pass over the stored rows takes a second for each 1,000
queues of a partition, whatever the load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from ringfaust.core.model import Counts
from ringfaust.core.queue import QueueRow
from ringfaust.core.state import State
from ringfaust.worker.partition import PartitionWork

_ROWS = 100
"""Rows that are read at a time: about 1 ms."""
_BETWEEN_ROWS_S = 0.1
_BETWEEN_PASSES_S = 1.0


class Census(NamedTuple):
    """What a partition held when it was counted."""

    queues: int = 0
    ready: int = 0
    delivering: int = 0
    scheduled: int = 0
    is_balanced: bool = True
    """Whether the counts of each queue add up (R100)."""
    at_s: float = 0.0
    """When the pass ended, in seconds since 1970."""

    def with_queue(self, counts: Counts) -> Census:
        """This, and another queue."""
        return Census(
            self.queues + 1,
            self.ready + counts.ready,
            self.delivering + counts.delivering,
            self.scheduled + counts.scheduled,
            self.is_balanced and counts.added == counts.messages + counts.gone,
        )


class Observer(Protocol):
    """Sees every stored queue once in each pass."""

    def look(self, work: PartitionWork, rows: Collection[tuple[str, QueueRow]]) -> None:
        """Look at some queues of a partition."""

    def end_pass(self, work: PartitionWork) -> None:
        """Note that all its queues have been seen."""


class Censuses:
    """The last census of each assigned partition."""

    def __init__(
        self, works: Callable[[], Collection[PartitionWork]], observer: Observer | None = None
    ) -> None:
        """`works`: the partitions whose state is loaded."""
        self._works = works
        self._observer = observer
        self.last: dict[int, Census] = {}
        """By partition."""

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            works = self._works()
            numbers = {work.number for work in works}
            self.last = {number: it for number, it in self.last.items() if number in numbers}
            for work in works:
                if work in self._works():  # another one was counted meanwhile
                    await self._count(work, work.state)
            await asyncio.sleep(_BETWEEN_PASSES_S)

    async def _count(self, work: PartitionWork, state: State) -> None:
        """Count one partition; give up if it is reopened or revoked meanwhile."""
        census = Census()
        after: str | None = None
        while rows := state.stored_queues(after, _ROWS):
            for _, row in rows:
                census = census.with_queue(Counts(*row.counts))
            if self._observer is not None:
                self._observer.look(work, rows)
            if len(rows) == _ROWS:
                await asyncio.sleep(_BETWEEN_ROWS_S)
                if work not in self._works() or work.state is not state:
                    return
            after = rows[-1][0]
        self.last[work.number] = Census(*census[:-1], time.time())
        if self._observer is not None:
            self._observer.end_pass(work)
