"""How often a consumer sends heartbeats (R13)."""

from __future__ import annotations

import pytest

from ringfaust.client.attachment import SHORTEST_INTERVAL_S, heartbeat_interval_s


@pytest.mark.parametrize(
    ("timeout_ms", "longest_s", "interval_s"),
    [
        (0, 10.0, 10.0),
        (60_000, 10.0, 10.0),
        (3_000, 10.0, 1.0),
        (1, 10.0, SHORTEST_INTERVAL_S),
        (1, 0.05, 0.05),
    ],
)
def test_the_timeout_of_the_queue_shortens_the_interval_but_not_to_nothing(
    timeout_ms: int, longest_s: float, interval_s: float
) -> None:
    assert heartbeat_interval_s(timeout_ms, longest_s) == interval_s
