"""Which partitions this worker owns: opened when assigned, closed when revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types import TP

from ringfaust.errors import RingfaustError
from ringfaust.hosts.faust.partition import Partition, Shared
from ringfaust.hosts.faust.transport import Batch

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
        """
        ours = {tp for tp in tps if tp.topic in self._topics}
        numbers = {tp.partition for tp in ours}
        for number in numbers:
            missing = self._topics - {tp.topic for tp in ours if tp.partition == number}
            if missing:
                raise NotCopartitioned(
                    f"partition {number} of {sorted(missing)} is not assigned with the others: "
                    "the topics have different numbers of partitions"
                )
        ends = await self._ends(ours)
        opened = {
            number: Partition(number, self._topics, self._shared) for number in sorted(numbers)
        }
        try:
            found = await asyncio.gather(
                *(partition.open(ends[number]) for number, partition in opened.items())
            )
        except BaseException:
            await asyncio.gather(*(p.close() for p in opened.values()), return_exceptions=True)
            raise
        self._partitions = opened
        for partition in opened.values():
            partition.start()
        log.info("partitions %s are ours", sorted(numbers))
        return {
            TP(topic, number): offset
            for number, positions in zip(opened, found, strict=True)
            for topic, offset in positions.items()
            if topic in self._topics
        }

    async def on_revoked(self, tps: frozenset[TP]) -> None:
        """Close everything: who is assigned it next must find it committed."""
        partitions, self._partitions = self._partitions, {}
        await asyncio.gather(*(partition.close() for partition in partitions.values()))

    async def _ends(self, tps: set[TP]) -> dict[int, dict[str, int]]:
        """The committed end of each input topic, by partition."""
        consumer = AIOKafkaConsumer(**self._shared.client, isolation_level="read_committed")
        await consumer.start()
        try:
            found = await consumer.end_offsets([TopicPartition(*tp) for tp in tps])
        finally:
            await consumer.stop()
        ends: dict[int, dict[str, int]] = {}
        for tp, offset in found.items():
            ends.setdefault(tp.partition, {})[tp.topic] = offset
        return ends
