"""The numbers of a worker, collected once: metrics and status read them here.

What its batches have done and what its partitions hold are the `PartitionNumbers` of each. What
they hold is counted here, in the background, little by little: nobody counts it for each message. A
pass over the stored rows takes a second for each 1,000 queues of a partition, whatever the load.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from faust.types import TP

from ringfaust.core.model import Counts
from ringfaust.core.state import State
from ringfaust.worker.observe.health import Health
from ringfaust.worker.observe.queue_status import PartitionStatus
from ringfaust.worker.partition.numbers import Holding
from ringfaust.worker.partition.repartition import RepartitionWork
from ringfaust.worker.partition.work import PartitionWork

log = logging.getLogger(__name__)

_ROWS = 100
"""Rows that are read at a time: about 1 ms."""
_BETWEEN_ROWS_S = 0.1
_BETWEEN_PASSES_S = 1.0


PartOf = Callable[[PartitionWork], PartitionStatus | None]
"""The status of a partition, which sees every stored queue once in each pass; None: it has none."""


class Numbers:
    """What a worker does, holds, and has yet to read."""

    def __init__(
        self,
        health: Health,
        works: Callable[[], Collection[PartitionWork]],
        highwater: Callable[[TP], int | None],
        standbys: Callable[[], Mapping[int, int | None]],
    ) -> None:
        """Read nothing yet.

        Args:
            health: whether the worker and its partitions are ready.
            works: the partitions whose state is loaded.
            highwater: the end of an input partition, as far as it is known.
            standbys: by partition that it follows: records of the changelog left to apply; None:
                that is not known yet.
        """
        self.health = health
        self.works = works
        self.standbys = standbys
        self._highwater = highwater

    def copying(self) -> list[RepartitionWork]:
        """The partitions of repartitioned topics that are read."""
        tasks = [task for task in self.health.tasks() if not task.trouble]
        return [task.work for task in tasks if isinstance(task.work, RepartitionWork)]

    def lag(self, work: PartitionWork | RepartitionWork) -> dict[str, int]:
        """By input topic whose end is known: offsets between the position and the end."""
        ends = ((tp.topic, self._highwater(tp)) for tp in sorted(work.tps))
        return {
            topic: max(end - work.positions.get(topic, 0), 0)
            for topic, end in ends
            if end is not None
        }

    def recovery(self) -> dict[int, int]:
        """By partition: records to read before it is caught up."""
        left: dict[int, int] = {}
        for task in self.health.tasks():
            number = task.work.number
            left[number] = max(left.get(number, 0), self.health.remaining(task))
        return dict(sorted(left.items()))

    def waiting_bytes(self) -> dict[int, int]:
        """By partition: the memory of the input that waits to be decided."""
        held: dict[int, int] = {}
        for task in self.health.tasks():
            number = task.work.number
            held[number] = held.get(number, 0) + task.buffer.held_bytes
        return dict(sorted(held.items()))

    # --- counting --------------------------------------------------------------------------------

    async def count(self, part_of: PartOf) -> None:
        """Count what the partitions hold, until cancelled."""
        while True:
            for work in self.works():
                if work in self.works():  # another one was counted meanwhile
                    await self._try_to_count(work, part_of)
            await asyncio.sleep(_BETWEEN_PASSES_S)

    async def _try_to_count(self, work: PartitionWork, part_of: PartOf) -> None:
        """Count one partition. A row that cannot be read stops it, once it is needed (R123)."""
        try:
            await self.count_once(work, work.state, part_of)
        except Exception as error:
            log.warning("cannot count what partition %d holds: %r", work.number, error)

    async def count_once(self, work: PartitionWork, state: State, part_of: PartOf) -> None:
        """Count one partition; give up if it is reopened or revoked meanwhile."""
        holding = Holding()
        after: str | None = None
        while rows := state.stored_queues(after, _ROWS):
            for _, row in rows:
                holding = holding.with_queue(Counts(*row.counts))
            if (part := part_of(work)) is not None:
                part.look(rows)
            if len(rows) == _ROWS:
                await asyncio.sleep(_BETWEEN_ROWS_S)
                if work not in self.works() or work.state is not state:
                    return
            after = rows[-1][0]
        work.numbers.holding = holding._replace(at_s=time.time())
        if (part := part_of(work)) is not None:
            part.end_pass()
