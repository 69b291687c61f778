"""What a partition does with routes that would move queues with messages (R113)."""

from __future__ import annotations

from ringfaust.protocol.route_changes import MovedQueue, shown
from ringfaust.worker.interfaces import StopsWorker


class QueuesMoved(StopsWorker):
    """The routes would move queues that have messages to other partitions. Nothing was changed.

    What to do: start the workers with the earlier routes, and empty the queues first.
    """

    def __init__(self, number: int, moved: list[MovedQueue]) -> None:
        super().__init__(
            f"partition {number}: routes, hop or partitions were changed, and the records of these "
            f"queues would come to another partition: {shown(moved)}. Nothing was changed. Restore "
            "the earlier routes and partitions and start the workers; consume, move or purge the "
            "messages; then stop all workers and change the configuration again"
        )
