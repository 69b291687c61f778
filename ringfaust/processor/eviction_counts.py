"""What a batch has evicted, in numbers; for metrics."""

from __future__ import annotations

from ringfaust.core.effects import Evicted
from ringfaust.core.model import EvictReason


class EvictionCounts:
    """Counts each eviction as it happens: to keep thousands of them until a commit costs more."""

    def __init__(self) -> None:
        self.ages_ms: list[int] = []
        """How long each message had been in its queue."""
        self.messages: dict[tuple[str, EvictReason], int] = {}
        """By queue and reason."""

    def add(self, gone: Evicted) -> None:
        """Count an eviction."""
        pair = (gone.queue, gone.reason)
        self.messages[pair] = self.messages.get(pair, 0) + 1
        self.ages_ms.append(gone.at_ms - gone.message.enqueued_ms)
