"""The clock of a worker next to the brokers' (R115), and how far it has heard (R110)."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.core.model import Heard
from ringfaust.worker import clock as clocks
from ringfaust.worker.clock import CheckedClock, ClockSkewed
from ringfaust.worker.interfaces import LogEnd
from ringfaust.worker.partition.hearing import MAX_PAUSE_MS, NOTHING, Hearing, continue_from
from tests.background import running, until


class Machine:
    """A clock that tests set, and the brokers' time beside it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = self.broker_ms = 1_000_000
        monkeypatch.setattr(clocks, "wall_ms", lambda: self.now_ms)
        monkeypatch.setattr(clocks, "_LOOK_INTERVAL_S", 0.001)
        monkeypatch.setattr(clocks, "_RECHECK_INTERVAL_S", 0.001)

    async def skew_ms(self) -> int:
        return self.now_ms - self.broker_ms


async def test_a_clock_that_jumps_stands_in_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """R115: steps go on with the time that agreed last; nothing runs ahead."""
    machine = Machine(monkeypatch)
    clock = CheckedClock(1_000, machine.skew_ms)
    assert not clock.is_right  # nobody has compared it yet
    async with running(clock.watch()):
        await until(lambda: clock.is_right)
        machine.now_ms += 3_000_000
        assert not clock.is_right
        assert 0 <= clock.wall_ms() - 1_000_000 < 10_000
        machine.now_ms -= 3_000_000
        await until(lambda: clock.is_right)
        machine.now_ms, machine.broker_ms = 9_000_000, 9_000_000  # both were set
        await until(lambda: clock.is_right)
        assert clock.wall_ms() == 9_000_000


async def test_a_clock_that_was_checked_before_the_start_is_not_checked_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    asked = []

    async def skew_ms() -> int:
        asked.append(machine.now_ms)
        return await machine.skew_ms()

    clock = CheckedClock(1_000, skew_ms, is_checked=True)
    assert clock.is_right
    async with running(clock.watch()):
        await asyncio.sleep(0)
        assert asked == []
        machine.now_ms += 5_000  # it jumps, so it is checked
        await until(lambda: not clock.is_right)
        await until(lambda: asked)


async def test_a_clock_that_was_never_right_stops_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R115: also behind the brokers'."""
    machine = Machine(monkeypatch)
    machine.broker_ms += 5_000
    with pytest.raises(ClockSkewed, match="5 s behind the brokers'"):
        await CheckedClock(1_000, machine.skew_ms).watch()


def test_a_pause_between_two_answers_begins_a_new_stretch() -> None:
    """R110: nobody knows whether clients could reach the brokers meanwhile."""
    first = continue_from(None, 1_000, 5)
    assert first == LogEnd(1_000, 1_000, 5)
    second = continue_from(first, 1_000 + MAX_PAUSE_MS, 6)
    assert second.since_ms == 1_000
    assert continue_from(second, second.asked_ms + MAX_PAUSE_MS + 1, 6).since_ms > 1_000
    assert continue_from(second, second.asked_ms - 1, 6).since_ms == second.asked_ms - 1


def test_a_log_that_grows_without_a_pause_is_heard() -> None:
    """R110: the end to reach stays the same until it is reached."""
    hearing = Hearing()
    assert hearing.target(None) is None
    assert hearing.heard == NOTHING
    first, second = LogEnd(1_000, 500, 10), LogEnd(1_500, 500, 20)
    assert hearing.target(first) == first
    assert hearing.target(second) == first
    hearing.reach()
    assert hearing.heard == Heard(500, 1_000)
    assert hearing.target(first) is None
    assert hearing.target(second) == second
