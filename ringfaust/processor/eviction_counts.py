"""What a batch has evicted, in numbers; for metrics."""

from __future__ import annotations

from ringfaust.core.effects import Evicted

OTHERS = ""
"""In place of a queue's name: all queues that have no total of their own."""


class EvictionCounts:
    """Counts each eviction as it happens: to keep thousands of them until a commit costs more."""

    def __init__(self) -> None:
        self.ages_ms: list[int] = []
        """How long each message had been in its queue."""
        self.messages: dict[str, dict[str, int]] = {}
        """By reason and queue."""

    def add(self, gone: Evicted) -> None:
        """Count an eviction."""
        of_queues = self.messages.get(gone.reason)
        if of_queues is None:
            of_queues = self.messages[gone.reason] = {}
        of_queues[gone.queue] = of_queues.get(gone.queue, 0) + 1
        self.ages_ms.append(gone.at_ms - gone.message.enqueued_ms)

    def add_to(self, totals: dict[str, dict[str, int]], most: int) -> None:
        """Add the messages to totals.

        Args:
            totals: by reason and queue; all reasons are there.
            most: queues in each; the messages of further queues count for `OTHERS`.
        """
        for reason, of_queues in self.messages.items():
            total = totals[reason]
            others = 0
            for queue, messages in of_queues.items():
                known = total.get(queue)
                if known is not None:
                    total[queue] = known + messages
                elif len(total) < most:
                    total[queue] = messages
                else:
                    others += messages
            if others:
                total[OTHERS] = total.get(OTHERS, 0) + others
