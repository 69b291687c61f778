"""Lines of the events topic as a worker with full rings writes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count

from ringfaust.core import effects as e
from ringfaust.core.model import EvictReason, Message, plain_position
from ringfaust.protocol.events import WRITERS, event_tail
from ringfaust.protocol.records import Payload

QUEUES = 16
RING = 64
FROM_MS = 1_760_000_000_000


def event_lines(partition: int, from_ms: int = FROM_MS) -> Iterator[str]:
    """Yield the endless lines of full rings: each message is added and evicts the oldest one.

    Times begin at `from_ms`, in ms since 1970, with 50 messages in each.
    """
    ready: dict[str, deque[Message]] = {}
    for number in count():
        now_ms = from_ms + number // 50
        source = f"orders/{partition}/{number}"
        queue = f"orders.{number % QUEUES}"
        ring = ready.setdefault(queue, deque())
        sequence = number // QUEUES + 1
        message = Message(
            source, sequence, plain_position(sequence), 4, now_ms, 0, 0, "", 0, 0, (), 200,
            Payload(None, b"", (), source),
        )  # fmt: skip
        tail = event_tail(now_ms, source)
        ring.append(message)
        yield WRITERS[e.Added](e.Added(queue, message), number + 1) + tail
        if len(ring) > RING:
            evicted = e.Evicted(
                queue, ring.popleft(), EvictReason.OVERFLOW, source, RING, RING, now_ms, "full"
            )
            yield WRITERS[e.Evicted](evicted, number + 1) + tail
