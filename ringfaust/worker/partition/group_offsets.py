"""When the offsets of the consumer group follow the positions of a partition.

The positions in the state decide where it reads on. The group's offsets serve monitoring, and each
commit of them costs two requests, so they lag a little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringfaust.kafka.offsets import CommittedOffset
from ringfaust.worker.interfaces import WorkerClock

LAG_S = 2.0
"""How far they may lag."""
_NOT_OURS = -1


class GroupOffsets:
    """What the group has of one partition's topics."""

    def __init__(self, clock: WorkerClock) -> None:
        self._clock = clock
        self._known: dict[str, int] = {}
        """By topic: the offset that was read or committed last."""
        self._next_s = 0.0
        """When they are next due, if they lag."""

    def learn(self, topics: Iterable[str], committed: Mapping[str, CommittedOffset]) -> None:
        """Note what the group has of some topics.

        An offset of a repartition task would be taken for the position: see `start_positions`.
        """
        for topic in topics:
            self._known.pop(topic, None)
        for topic, found in committed.items():
            self._known[topic] = _NOT_OURS if found.is_repartitioned else found.offset
        self._next_s = 0.0

    def until_due_s(self, positions: Mapping[str, int]) -> float | None:
        """How long until they follow the positions; None: they do not lag."""
        return max(self._next_s - self._clock.monotonic_s(), 0.0) if self._lag(positions) else None

    def take(self, positions: Mapping[str, int], *, is_last: bool) -> Mapping[str, int]:
        """The offsets to commit with this batch; empty as long as they are not due.

        The group is never ahead of the state: that would look as if state had been lost.
        """
        lag = self._lag(positions)
        now_s = self._clock.monotonic_s()
        is_ahead = any(self._known.get(topic, 0) > at for topic, at in lag.items())
        if not (is_ahead or is_last or now_s >= self._next_s):
            return {}
        self._next_s = now_s + LAG_S
        self._known.update(lag)
        return lag

    def _lag(self, positions: Mapping[str, int]) -> dict[str, int]:
        known = self._known
        return {topic: at for topic, at in positions.items() if at != known.get(topic, 0)}
