"""The contents of a queue: the answer to `list` (R34)."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ringfaust.core.queue import Queue


def list_queue(queue: Queue, limit: int) -> dict[str, Any]:
    """Return the ids of the first `limit` messages in each state, and the counts.

    `ready` in delivery order, `delivering` by consumer in the order handed over, `scheduled` by
    (due time, sequence).
    """
    delivering: dict[str, list[str]] = {}
    for _, delivery in islice(queue.deliveries, limit):
        delivering.setdefault(delivery.consumer, []).append(delivery.message.id)
    return {
        "ready": [message.id for message in islice(queue.in_order(), limit)],
        "delivering": delivering,
        "scheduled": [message.id for _, message in islice(queue.scheduled, limit)],
        "counts": queue.counts.as_dict(),
    }
