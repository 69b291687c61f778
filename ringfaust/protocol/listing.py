"""The contents of a queue: the answer to `list` (R34)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ringfaust.core.model import Message, cost_bytes
from ringfaust.core.queue import Queue


def list_queue(queue: Queue, limit: int, most_bytes: int | None = None) -> dict[str, Any]:
    """Return the ids of the first `limit` messages in each state, and the counts.

    `ready` in delivery order, `delivering` by consumer in the order handed over, `scheduled` by
    (due time, sequence).

    Args:
        queue: the queue.
        limit: how many ids of each state.
        most_bytes: end each list once so many bytes of messages were read for it (R121).
    """
    delivering: dict[str, list[str]] = {}
    held = ((each.message, each.consumer) for _, each in queue.deliveries.walk())
    for id_, consumer in _first(held, limit, most_bytes):
        delivering.setdefault(consumer, []).append(id_)
    ready = ((message, "") for message in queue.in_order())
    scheduled = ((message, "") for _, message in queue.scheduled.walk())
    return {
        "ready": [id_ for id_, _ in _first(ready, limit, most_bytes)],
        "delivering": delivering,
        "scheduled": [id_ for id_, _ in _first(scheduled, limit, most_bytes)],
        "counts": queue.counts.as_dict(),
    }


def _first(
    rows: Iterable[tuple[Message, str]], limit: int, most_bytes: int | None
) -> Iterator[tuple[str, str]]:
    """The ids of the first messages, each with what stands beside it."""
    read_bytes = 0
    for message, beside in islice(rows, limit):
        yield message.id, beside
        read_bytes += cost_bytes(message)
        if most_bytes is not None and read_bytes >= most_bytes:
            return
