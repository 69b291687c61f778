"""Queues and addresses named after a key, whose records are in another partition (R113)."""

from __future__ import annotations

import json
from typing import NamedTuple


class Misplaced(NamedTuple):
    """A queue whose first message has come from another partition than that of its key."""

    queue: str
    """Its name, or that of an address."""
    topic: str
    partition: int
    """Of the record, where the queue is now."""
    home: int
    """The partition of the record's key."""

    def __str__(self) -> str:
        """What is wrong, and what to do."""
        return (
            f"{self.queue!r} began in partition {self.partition} of {self.topic}, but "
            f"Kafka's default partitioner puts its key into partition {self.home}: records there "
            "make a second one of this name. Let all producers use the default partitioner, or "
            "set hop: always on the route"
        )


def misplaced_line(found: Misplaced, by: str, step: int, now_ms: int) -> str:
    """The queue's line on the events topic.

    Args:
        found: the queue.
        by: its first record: topic/partition/offset.
        step: of the partition's state.
        now_ms: the time.
    """
    line = {
        "step": step, "event": "misplaced", "queue": found.queue, "partition": found.partition,
        "home": found.home, "text": str(found), "time_ms": now_ms, "by": by,
    }  # fmt: skip
    return json.dumps(line, separators=(",", ":"))
