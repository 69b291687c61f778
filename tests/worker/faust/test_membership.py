"""When a worker may open a partition, and so fence its present owner (R126)."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ringfaust.worker.faust import transport
from ringfaust.worker.faust.transport import BatchConsumer

SESSION_S = 1_000.0


def consumer(member_s: float | None) -> Any:
    """What `prove_membership` needs of a consumer whose last heartbeat was sent at `member_s`."""
    conf = SimpleNamespace(broker_session_timeout=SESSION_S)
    thread = SimpleNamespace(member_s=member_s)
    return SimpleNamespace(app=SimpleNamespace(conf=conf), _membership=thread)


@pytest.mark.parametrize(
    ("age_s", "is_fenced", "is_proven"),
    [
        (0.4 * SESSION_S, False, True),
        (0.6 * SESSION_S, False, False),  # for example, the process was paused
        (0.4 * SESSION_S, True, False),  # somebody has opened the partition since
        (None, False, False),
    ],
)
async def test_a_heartbeat_proves_membership_for_half_a_session(
    age_s: float | None, is_fenced: bool, is_proven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MEMBERSHIP_POLL_S", 0)
    reader = consumer(None if age_s is None else time.monotonic() - age_s)
    proving = asyncio.ensure_future(BatchConsumer.prove_membership(reader, is_fenced=is_fenced))
    for _ in range(20):
        await asyncio.sleep(0)
    assert proving.done() is is_proven
    reader._membership.member_s = time.monotonic()  # another heartbeat
    async with asyncio.timeout(10):
        await proving
