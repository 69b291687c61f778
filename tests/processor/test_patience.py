"""A broker that is away is tried less and less often, whatever becomes of the others."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.kafka.transactions import Backoff


@pytest.fixture
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is waited, which here takes no time."""
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    return waited


async def test_a_broker_that_is_away_is_left_in_peace(waits_s: list[float]) -> None:
    away = {1}

    async def ready(node_id: int, *, group: int) -> bool:
        return node_id not in away

    patience = Backoff(ready)
    for _ in range(7):
        assert not await patience.ready(1, group=0)
        assert await patience.ready(2, group=0)
    assert waits_s == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    away.clear()
    assert await patience.ready(1, group=1)
    away.add(1)
    assert not await patience.ready(1, group=0)
    assert waits_s[7:] == [0.05]
