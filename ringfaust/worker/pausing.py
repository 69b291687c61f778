"""Pause topics whose next record is for a paused or full queue (R61, R90).

Kafka is read in order, so the records behind that one wait too, even if they are for other queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from aiokafka.errors import IllegalStateError
from faust.types import TP

from ringfaust.processor.processor import Processor
from ringfaust.worker.interfaces import InputReader

log = logging.getLogger(__name__)


class InputPauses:
    """Pauses the input topics that a processor has blocked, and resumes them."""

    def __init__(
        self, number: int, processor: Processor[Any], reader: Callable[[], InputReader]
    ) -> None:
        self._number = number
        self._processor = processor
        self._reader = reader
        self._paused: set[str] = set()

    async def update(self) -> None:
        """After each cycle: pause and resume topics as its commands and records require."""
        for topic, queue in list(self._processor.paused_topics.items()):
            if self._processor.accepts_sends(queue):
                await self._resume(topic, queue)
            elif topic not in self._paused:
                self._pause(topic, queue)

    def _pause(self, topic: str, queue: str) -> None:
        self._paused.add(topic)
        self._reader().pause_until_seek(TP(topic, self._number))
        found = self._processor.state.queue(queue)
        is_paused = found is not None and "pulling" in found.paused
        log.info(
            "%s, partition %d: paused at offset %d: queue %r is %s",
            topic, self._number, self._processor.positions[topic], queue,
            "paused" if is_paused else "full",
        )  # fmt: skip

    async def _resume(self, topic: str, queue: str) -> None:
        offset = self._processor.positions[topic]
        try:
            # Seek even if it was not paused yet: the records that were skipped must come again.
            await self._reader().seek(TP(topic, self._number), offset)
        except IllegalStateError:
            return  # reassigned meanwhile: the new assignment seeks
        self._paused.discard(topic)
        del self._processor.paused_topics[topic]
        log.info(
            "%s, partition %d: resumed at offset %d: queue %r accepts messages again",
            topic, self._number, offset, queue,
        )  # fmt: skip
