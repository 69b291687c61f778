"""An unreachable broker is retried less and less often; other brokers are not delayed."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.kafka.vendor import Backoff


@pytest.fixture
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits, which take no time here."""
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    return waited


async def test_the_wait_doubles_up_to_a_second_and_starts_again_after_success(
    waits_s: list[float],
) -> None:
    away = {1}

    async def ready(node_id: int, *, group: int) -> bool:
        return node_id not in away

    backoff = Backoff(ready)
    for _ in range(7):
        assert not await backoff.ready(1, group=0)
        assert await backoff.ready(2, group=0)
    assert waits_s == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    away.clear()
    assert await backoff.ready(1, group=1)
    away.add(1)
    assert not await backoff.ready(1, group=0)
    assert waits_s[7:] == [0.05]
