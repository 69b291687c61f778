"""Topics stand still while the queue that their next record is for is not pulled (R61, R90).

Kafka is read in order, so what stands behind that record waits with it, also for other queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from aiokafka.errors import IllegalStateError
from faust.types import TP

from ringfaust.processor.processor import Processor
from ringfaust.worker.transport import BatchConsumer

log = logging.getLogger(__name__)


class Pulling:
    """Halts the topics that a partition's road has blocked, and lets them go on."""

    def __init__(
        self, number: int, road: Processor[Any], reader: Callable[[], BatchConsumer]
    ) -> None:
        self._number = number
        self._road = road
        self._reader = reader
        self._halted: set[str] = set()

    async def see_to(self) -> None:
        """After each turn: do what its commands and records have brought."""
        for topic, queue in list(self._road.blocked.items()):
            if self._road.is_pulled(queue):
                await self._go_on(topic, queue)
            elif topic not in self._halted:
                self._halt(topic, queue)

    def _halt(self, topic: str, queue: str) -> None:
        self._halted.add(topic)
        self._reader().halt(TP(topic, self._number))
        offset = self._road.positions[topic]
        found = self._road.state.queue(queue)
        is_paused = found is not None and "pulling" in found.paused
        why = "pulling of queue %r is paused" if is_paused else "queue %r is full"
        log.info(
            f"%s, partition %d: waits at offset %d, for {why}", topic, self._number, offset, queue
        )

    async def _go_on(self, topic: str, queue: str) -> None:
        offset = self._road.positions[topic]
        try:
            # Also if it was not halted yet: of what was passed over nothing comes by itself.
            await self._reader().seek(TP(topic, self._number), offset)
        except IllegalStateError:
            return  # reassigned meanwhile: whoever comes next seeks
        self._halted.discard(topic)
        del self._road.blocked[topic]
        log.info(
            "%s, partition %d: goes on at offset %d, for queue %r is pulled again",
            topic, self._number, offset, queue,
        )  # fmt: skip
