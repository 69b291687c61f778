"""Which partitions this worker owns: opened when assigned, closed when revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from aiokafka.errors import KafkaError
from faust.types import TP

from ringfaust.errors import RingfaustError
from ringfaust.hosts.faust.inputs import read_bounds
from ringfaust.hosts.faust.partition import RETRY_FIRST_S, RETRY_MOST_S, Partition, Shared
from ringfaust.hosts.faust.thread import Batch

log = logging.getLogger(__name__)


class NotCopartitioned(RingfaustError):
    """This worker was given a partition of one input topic and not of another.

    What to do: give all topics that are read without a hop the same number of partitions;
    `ringfaust topics verify` names the one that differs.
    """


class Owner:
    """The transport's host: it owns the offsets and the state behind the partitions."""

    def __init__(self, shared: Shared, input_topics: frozenset[str]) -> None:
        self._shared = shared
        self._topics = input_topics
        self._partitions: dict[int, Partition] = {}

    def offer(self, batch: Batch) -> None:
        """Records for one of the partitions; a batch of one that is gone is stale anyway."""
        partition = self._partitions.get(batch.tp.partition)
        if partition is not None:
            partition.offer(batch)

    async def on_assigned(self, tps: frozenset[TP]) -> Mapping[TP, int]:
        """Open what was assigned, and tell where to go on.

        Raises:
            NotCopartitioned: of some partition not all input topics are ours.
            StateLost: what a partition's rings held is gone.
        """
        ours = {tp for tp in tps if tp.topic in self._topics}
        for number in {tp.partition for tp in ours}:
            missing = self._topics - {tp.topic for tp in ours if tp.partition == number}
            if missing:
                raise NotCopartitioned(
                    f"partition {number} of {sorted(missing)} is not assigned with the others: "
                    "the topics have different numbers of partitions"
                )
        wait_s = RETRY_FIRST_S
        while True:
            try:
                positions = await self._open(ours)
                break
            except (TimeoutError, KafkaError, OSError) as error:
                log.warning("cannot take over yet (%r); next try in %.1f s", error, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MOST_S)
        for partition in self._partitions.values():
            partition.start()
        log.info("partitions %s are ours", sorted(self._partitions))
        return positions

    async def _open(self, tps: set[TP]) -> dict[TP, int]:
        """Open all partitions, or none."""
        bounds = await read_bounds(self._shared.client, tps)
        opened = {
            number: Partition(number, self._topics, self._shared) for number in sorted(bounds)
        }
        opening = [asyncio.ensure_future(opened[number].open(bounds[number])) for number in opened]
        try:
            found = await asyncio.gather(*opening)
        except BaseException:
            # Who comes next finds none of them half open.
            for task in opening:
                task.cancel()
            await asyncio.wait(opening)
            await asyncio.gather(*(partition.close() for partition in opened.values()))
            raise
        self._partitions = opened
        return {
            TP(topic, number): offset
            for number, positions in zip(opened, found, strict=True)
            for topic, offset in positions.items()
        }

    async def on_revoked(self, tps: frozenset[TP]) -> None:
        """Close everything: who is assigned it next must find it committed."""
        partitions, self._partitions = self._partitions, {}
        await asyncio.gather(*(partition.close() for partition in partitions.values()))
