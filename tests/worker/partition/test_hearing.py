"""How long the brokers have been silent; needs no broker."""

from __future__ import annotations

import asyncio

from ringfaust.testing.broker import free_port
from ringfaust.worker.clock import SystemClock
from ringfaust.worker.partition.hearing import LogEnds
from tests.background import running


class _Clock(SystemClock):
    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


async def test_brokers_are_silent_only_while_they_are_asked() -> None:
    """A worker that stops has ended `run`; it must not blame the brokers."""
    clock = _Clock()
    ends = LogEnds("control", {"bootstrap_servers": f"127.0.0.1:{free_port()}"}, clock)
    clock.now_s = 5.0
    assert ends.silent_s() == 0
    async with running(ends.run(tuple)):
        await asyncio.sleep(0)
        clock.now_s = 12.0
        assert ends.silent_s() == 7
    assert ends.silent_s() == 0
