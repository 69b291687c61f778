"""Points of the charts, and when a worker counts as silent."""

from __future__ import annotations

from typing import NamedTuple

POINTS = 300
"""Of a chart."""
STEP_MS = 2_000
"""Between two points, if looking at the queues takes no longer."""
WORKER_SILENT_MS = 10_000
"""A worker says what it does every 5 seconds: one that has missed that twice is silent."""


class Point(NamedTuple):
    """A moment in a chart. None: that was not known then, so the line has a gap."""

    time_s: float
    ready: int | None = None
    added: float | None = None
    acked: float | None = None
    evicted: float | None = None
