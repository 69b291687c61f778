"""Where queues live, and what a change of the routes would do to those with messages (R113).

A queue lives in the partition that its records come to. With other routes, another `hop` or another
number of partitions they would come to another one, and the queue would be in two places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ringfaust.core.address import address_of
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.routes import RouteTemplate
from ringfaust.protocol.stored_rows import Feeds
from ringfaust.worker.interfaces import StopsWorker


class QueuesMoved(StopsWorker):
    """The routes would move queues that have messages to other partitions. Nothing was changed.

    What to do: start the workers with the earlier routes, and empty the queues first.
    """


class MovedQueue(NamedTuple):
    """A queue whose records now come to another partition."""

    name: str
    messages: int
    partition: int | None
    """The other partition; None if the producers choose it."""


class RouteChanges:
    """Where changed routes put queues."""

    def __init__(self, before: Feeds | None, now: Feeds) -> None:
        """Compare two configurations.

        Args:
            before: what fed the queues of the partition; None if that is not known, because the
                state is new or from version 0.1.0. Then nothing counts as changed.
            now: what is configured.
        """
        before = before or now
        self._partitions = now.partitions
        known = set(before.routes) if before.partitions == now.partitions else set()
        self._was_repartitioned = {feed.topic for feed in before.routes if feed.is_repartitioned}
        self._changed = [
            (feed, RouteTemplate(feed.queue)) for feed in now.routes if feed not in known
        ]

    @property
    def has_changed(self) -> bool:
        """Whether any queue could have moved."""
        return bool(self._changed)

    def elsewhere(self, queue: str, number: int) -> tuple[bool, int | None]:
        """Whether the queue's records now come to another partition than `number`, and to which."""
        for partition in self._partitions_of(queue):
            if partition != number:
                return True, partition
        return False, number

    def _partitions_of(self, queue: str) -> Iterator[int | None]:
        """Where each changed route that can lead to the queue puts it."""
        name = address_of(queue) or queue
        for feed, template in self._changed:
            if not template.may_name(name):
                continue
            if feed.is_repartitioned:
                yield partition_of(name, self._partitions)
            elif template.parts == ["key"]:
                before, behind = template.texts
                yield partition_of(name[len(before) : len(name) - len(behind)], self._partitions)
            elif feed.topic in self._was_repartitioned:
                yield None  # where the producer's partitioner puts it


def refuse_moved(number: int, moved: list[MovedQueue]) -> None:
    """Refuse to start while queues with messages would be in two places (R113).

    Raises:
        QueuesMoved: there is such a queue.
    """
    if not moved:
        return
    shown = ", ".join(
        f"{queue.name!r} ({queue.messages:,} messages, "
        + (
            f"to partition {queue.partition})"
            if queue.partition is not None
            else "to any partition)"
        )
        for queue in moved[:3]
    )
    more = f" and {len(moved) - 3:,} more" if len(moved) > 3 else ""
    raise QueuesMoved(
        f"partition {number}: routes, hop or partitions were changed, and the records of these "
        f"queues would come to another partition: {shown}{more}. Nothing was changed. Restore the "
        "earlier routes and partitions and start the workers; consume, move or purge the messages; "
        "then stop all workers and change the configuration again"
    )
