"""The numbers of one partition since it was assigned; `observe` reads them.

What a batch has done is counted once a commit, and what the partition holds in the background.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Sized
from typing import NamedTuple

from ringfaust.core.model import Counts, EvictReason
from ringfaust.processor.outbox import WRITTEN, Activity
from ringfaust.protocol.records import Role

AGE_BOUNDS_S = (0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)
COMMIT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_COUNTED = 10_000
"""Most queues with a count of their own for a reason, in one partition."""
_MOST_CHANGED = 100_000
"""Of queues whose status is to be published. The count in the background finds the others."""


class Histogram:
    """How often a value fell between two bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: the largest value of each bucket but the last, ascending."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values_ms: Sequence[int]) -> None:
        """Count many times: a tenth of the time of `observe` for each. The bounds are seconds."""
        ordered = sorted(values_ms)
        before = 0
        for bucket, bound_s in enumerate(self.bounds):
            upto = bisect_right(ordered, bound_s * 1000)
            self.counts[bucket] += upto - before
            before = upto
        self.counts[-1] += len(ordered) - before
        self.sum += sum(ordered) / 1000


class Holding(NamedTuple):
    """What a partition held when it was counted."""

    queues: int = 0
    ready: int = 0
    delivering: int = 0
    scheduled: int = 0
    is_balanced: bool = True
    """Whether the counts of each queue add up (R100)."""
    at_s: float = 0.0
    """When the count ended, in seconds since 1970."""

    def with_queue(self, counts: Counts) -> Holding:
        """This, and another queue."""
        return Holding(
            self.queues + 1,
            self.ready + counts.ready,
            self.delivering + counts.delivering,
            self.scheduled + counts.scheduled,
            self.is_balanced and counts.balanced,
        )


class PartitionNumbers:
    """What the batches of one partition have done, and what it holds."""

    def __init__(self) -> None:
        # From 0 on: Prometheus takes the first value that it sees for the beginning, and would not
        # see the first eviction.
        self.written = Counter({str(role): 0 for role in WRITTEN})
        """Records by the role of their topic."""
        self.evicted: dict[str, dict[str, int]] = {str(reason): {} for reason in EvictReason}
        """Messages by reason and queue; see `EvictionCounts.add_to`."""
        self.eviction_age_s = Histogram(AGE_BOUNDS_S)
        self.commit_s = Histogram(COMMIT_BOUNDS_S)
        self.holding: Holding | None = None
        """As it was counted in the background; None: not yet."""
        self.rates: dict[str, Mapping[str, float]] = {}
        """By queue: those of its row of the status topic, if it has any."""
        self._changed: set[str] = set()

    def commit(
        self, outputs: Mapping[tuple[Role, int | None], Sized], activity: Activity, seconds: float
    ) -> None:
        """Count what was committed.

        Args:
            outputs: the records, by the role of their topic.
            activity: what the batch has done.
            seconds: how long the commit has taken.
        """
        self.commit_s.observe(seconds)
        self.written.update({str(role): len(records) for (role, _), records in outputs.items()})
        if len(self._changed) < _MOST_CHANGED:
            self._changed.update(activity.changed)
        if activity.evicted is not None:
            self.eviction_age_s.observe_all(activity.evicted.ages_ms)
            activity.evicted.add_to(self.evicted, MOST_COUNTED)

    def take_changed(self) -> Collection[str]:
        """The queues that commits have changed since the last call, up to `_MOST_CHANGED`."""
        changed, self._changed = self._changed, set()
        return changed
