"""What a consumer of the engine holds."""

from __future__ import annotations

from ringfaust.core.model import Consumer, Delivery
from ringfaust.core.queue import Queue


def held_by(queue: Queue, consumer: Consumer) -> list[Delivery]:
    """A consumer's unsettled deliveries, oldest first."""
    found = [queue.deliveries.get(number) for number in sorted(consumer.positions)]
    return [each for each in found if each is not None]
