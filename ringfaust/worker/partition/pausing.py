"""Pause topics whose next record is for a paused or full queue (R61, R90).

Kafka is read in order, so the records behind that one wait too, even if they are for other queues.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from aiokafka.errors import IllegalStateError
from faust.types import TP

from ringfaust.processor.processor import Processor, awaits_revision
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.interfaces import InputChanged

log = logging.getLogger(__name__)

_SURELY_SAME_S = 0.05
"""After a shorter pause the topic is taken for the same: a broker needs 70 ms or more to delete it
and create another. Full queues pause and resume many times a second, and asking takes a connection.
"""


class InputPauses:
    """Pauses the input topics that a processor has paused, and resumes them."""

    def __init__(self, number: int, processor: Processor[Any], context: WorkerContext) -> None:
        self._number = number
        self._processor = processor
        self._context = context
        self._paused: dict[str, float] = {}
        """By topic: since when."""

    def keep(self, topics: Collection[str]) -> None:
        """Pause only those of these topics: the others are read no more."""
        for topic in [topic for topic in self._processor.paused_topics if topic not in topics]:
            self._processor.resume(topic)
            self._paused.pop(topic, None)

    async def update(self) -> None:
        """After each cycle: pause and resume topics as its commands and records require.

        Raises:
            InputChanged: a topic was created again while it was paused.
            KafkaError: the brokers do not say whether it was.
        """
        for topic, queue in list(self._processor.paused_topics.items()):
            if self._processor.accepts_sends(queue):
                await self._resume(topic, queue)
            elif topic not in self._paused:
                self._pause(topic, queue)

    def _pause(self, topic: str, queue: str) -> None:
        self._paused[topic] = self._context.clock.monotonic_s()
        self._context.reader().pause_until_seek(TP(topic, self._number))
        log.info(
            "%s, partition %d: paused at offset %d: %s",
            topic, self._number, self._processor.positions[topic],
            self._processor.why_paused(queue),
        )  # fmt: skip

    async def _resume(self, topic: str, queue: str) -> None:
        offset = self._processor.positions[topic]
        await self._check_identity(topic)
        try:
            # Seek even if it was not paused yet: the records that were skipped must come again.
            await self._context.reader().seek(TP(topic, self._number), offset)
        except IllegalStateError:
            return  # reassigned meanwhile: the new assignment seeks
        self._paused.pop(topic, None)
        self._processor.resume(topic)
        log.info(
            "%s, partition %d: resumed at offset %d: %s", topic, self._number, offset,
            "its configuration is in use" if awaits_revision(queue)
            else f"queue {queue!r} accepts messages again",
        )  # fmt: skip

    async def _check_identity(self, topic: str) -> None:
        """Notice that a topic was created again while nobody read it (R111)."""
        now_s = self._context.clock.monotonic_s()
        known = self._processor.inputs.get(topic)
        if known is None or now_s - self._paused.get(topic, now_s) < _SURELY_SAME_S:
            return
        found = (await self._context.topic_ids([topic])).topics.get(topic, "")
        if known.topic_id and found not in (known.topic_id, ""):
            raise InputChanged(f"{topic} was created again")
