"""What a partition has done since it was opened, counted once a commit; for metrics."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

from ringfaust.core.model import EvictReason
from ringfaust.processor.eviction_counts import EvictionCounts
from ringfaust.processor.outbox import WRITTEN

AGE_BOUNDS_S = (0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)
COMMIT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_COUNTED = 10_000
"""Most queues with a count of their own for a reason, in one partition."""


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


class Meter:
    """The counts of one partition."""

    def __init__(self) -> None:
        # From 0 on: Prometheus takes the first value that it sees for the beginning, and would not
        # see the first eviction.
        self.written = Counter({str(role): 0 for role in WRITTEN})
        """Records by the role of their topic."""
        self.evicted: dict[str, dict[str, int]] = {str(reason): {} for reason in EvictReason}
        """Messages by reason and queue; see `EvictionCounts.add_to`."""
        self.eviction_age_s = Histogram(AGE_BOUNDS_S)
        self.commit_s = Histogram(COMMIT_BOUNDS_S)

    def commit(
        self, written: Mapping[str, int], evicted: EvictionCounts | None, seconds: float
    ) -> None:
        """Count what was committed.

        Args:
            written: records by the role of their topic.
            evicted: what the batch has evicted; None: nothing.
            seconds: how long the commit has taken.
        """
        self.commit_s.observe(seconds)
        self.written.update(written)
        if evicted is None:
            return
        self.eviction_age_s.observe_all(evicted.ages_ms)
        evicted.add_to(self.evicted, MOST_COUNTED)
