"""What a partition does with routes that would move queues with messages (R113)."""

from __future__ import annotations

import logging
from typing import Any

from ringfaust.processor.processor import Processor
from ringfaust.protocol.route_changes import MovedQueue, RouteChanges, moved_text
from ringfaust.protocol.stored_rows import Feeds
from ringfaust.worker.interfaces import StopsWorker

log = logging.getLogger(__name__)


class QueuesMoved(StopsWorker):
    """The routes would move queues that have messages to other partitions. Nothing was changed.

    What to do: start the workers with the earlier routes, and empty the queues first.
    """

    def __init__(self, number: int, moved: list[MovedQueue]) -> None:
        super().__init__(
            f"partition {number}: routes, hop or partitions were changed, and the records of these "
            f"queues would come to another partition: {moved_text(moved)}. Nothing was changed. "
            "Restore the earlier routes and partitions and start the workers; consume, move or "
            "purge the messages; then stop all workers and change the configuration again"
        )


class RouteSwitch:
    """Switches a partition to other routes, once the queues that they would move are empty."""

    def __init__(self, number: int, processor: Processor[Any], feeds: Feeds | None) -> None:
        """`feeds`: what feeds its queues; None: that is not known, see `RouteChanges`."""
        self.feeds = feeds
        self._number = number
        self._processor = processor
        self._blocked: list[MovedQueue] = []
        """The queues that must be empty first."""

    @property
    def is_free_again(self) -> bool:
        """Whether queues were in the way, and are empty now."""
        return bool(self._blocked) and not any(map(self._messages_in, self._blocked))

    def _messages_in(self, moved: MovedQueue) -> int:
        queue = self._processor.state.queue(moved.name)
        return 0 if queue is None else queue.counts.messages

    @property
    def blocked(self) -> str:
        """Why it cannot switch now; empty: it has switched."""
        if not self._blocked:
            return ""
        return (
            f"it reads nothing but commands: the routes of revision {self._processor.revision} "
            f"would move queues with messages: {moved_text(self._blocked)}. Consume, move or purge "
            "these messages, or apply the earlier routes again"
        )

    def switch_to(self, now: Feeds) -> bool:
        """Delete the queues that these routes move, if they are all empty; False if not.

        A client attaches where a queue has had messages, so an empty one must not stay behind.

        Raises:
            QueuesMoved: some are not, and nothing was applied yet.
        """
        self._blocked = []
        if self.feeds == now:
            return True
        processor, number = self._processor, self._number
        moved = RouteChanges(self.feeds, now).moved(processor.queues, number)
        full = [queue for queue in moved if queue.messages]
        if full and not processor.revision:
            raise QueuesMoved(number, full)
        self._blocked = full
        if full:
            log.error("partition %d: %s", number, self.blocked)
            return False
        for queue in moved:
            log.info("partition %d: deletes %r: it is empty and moved", number, queue.name)
            processor.delete_queue(queue.name)
        processor.fed_by(now)
        self.feeds = now
        return True
