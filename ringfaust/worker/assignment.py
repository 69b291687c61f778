"""Which partitions this worker owns: opened when assigned, closed when revoked.

Of control, hop and the directly read topics the same number comes together, for one `Partition`.
Each partition of a topic that takes the hop comes for itself, for a `RepartitionTask`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from aiokafka.errors import KafkaError
from faust.types import TP

from ringfaust.errors import RingfaustError
from ringfaust.protocol.routes import Route
from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.input_positions import read_bounds
from ringfaust.worker.partition import Partition
from ringfaust.worker.repartition import RepartitionTask
from ringfaust.worker.task import RETRY_FIRST_S, RETRY_MOST_S, Loop

log = logging.getLogger(__name__)


class NotCopartitioned(RingfaustError):
    """This worker was given a partition of one input topic and not of another.

    What to do: give all topics that are read without a hop the same number of partitions;
    `ringfaust topics verify` names the one that differs.
    """


class Assignment:
    """The transport's host: it owns the offsets and the state behind the partitions."""

    def __init__(self, shared: WorkerContext, hopping: Sequence[Route]) -> None:
        """`hopping`: the routes whose records take the hop."""
        self._shared = shared
        ours = (shared.topics["control"], shared.topics["hop"])
        self._together = frozenset(
            {*ours, *(route.topic for route in shared.processor_config.routes)}
        )
        self._hopping = {route.topic: route for route in hopping}
        self._loops: dict[TP, Loop] = {}

    @property
    def topics(self) -> frozenset[str]:
        """All topics that are read."""
        return self._together | self._hopping.keys()

    def offer(self, batch: Batch) -> None:
        """Records for one of the partitions; a batch of one that is gone is stale anyway."""
        loop = self._loops.get(batch.tp)
        if loop is not None:
            loop.offer(batch)

    async def on_assigned(self, tps: frozenset[TP]) -> Mapping[TP, int]:
        """Open what was assigned, and tell where to go on.

        Raises:
            NotCopartitioned: of some partition not all topics that belong together are ours.
            StateLost: what a partition's rings held is gone.
        """
        wait_s = RETRY_FIRST_S
        while True:
            loops = self._loops_for(tps)
            try:
                positions = await self._open(loops)
                break
            except (TimeoutError, KafkaError, OSError) as error:
                log.warning("cannot take over yet (%r); next try in %.1f s", error, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MOST_S)
        self._loops = {tp: loop for loop in loops for tp in loop.tps}
        for loop in loops:
            loop.start()
        log.info("%s are ours", "; ".join(loop.name for loop in loops))
        return positions

    def _loops_for(self, tps: frozenset[TP]) -> list[Loop]:
        """Who is to read them."""
        topics_of: dict[int, set[str]] = {}
        loops: list[Loop] = []
        for tp in sorted(tps):
            if tp.topic in self._together:
                topics_of.setdefault(tp.partition, set()).add(tp.topic)
            elif tp.topic in self._hopping:
                loops.append(RepartitionTask(self._hopping[tp.topic], tp.partition, self._shared))
        for number, topics in sorted(topics_of.items()):
            if missing := self._together - topics:
                raise NotCopartitioned(
                    f"partition {number} of {sorted(missing)} is not assigned with the others: "
                    "the topics have different numbers of partitions"
                )
            loops.append(Partition(number, self._together, self._shared))
        return loops

    async def _open(self, loops: Sequence[Loop]) -> dict[TP, int]:
        """Open all, or none."""
        bounds = await read_bounds(self._shared.client, [tp for loop in loops for tp in loop.tps])
        opening = [
            asyncio.ensure_future(loop.open({tp.topic: bounds[tp] for tp in loop.tps}))
            for loop in loops
        ]
        try:
            found = await asyncio.gather(*opening)
        except BaseException:
            # Who comes next finds none of them half open.
            for task in opening:
                task.cancel()
            await asyncio.wait(opening)
            await asyncio.gather(*(loop.close() for loop in loops))
            raise
        return {
            TP(topic, loop.number): offset
            for loop, positions in zip(loops, found, strict=True)
            for topic, offset in positions.items()
        }

    async def on_revoked(self, tps: frozenset[TP]) -> None:
        """Close everything: who is assigned it next must find it committed."""
        loops, self._loops = {*self._loops.values()}, {}
        await asyncio.gather(*(loop.close() for loop in loops))
