"""Which workers are removed from the group because they give no sign of life (R126)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ringfaust import cancellation
from ringfaust.kafka.admin import BrokerUnreachable
from ringfaust.protocol.status import SIGNS, Sign
from ringfaust.worker import failover
from ringfaust.worker.failover import HUNG_AFTER_S, Failover, LoopWatch, Peers
from tests.background import running, until

INTERVAL_MS = 750


def gone_after(*signs: str | Sign, interval_ms: int = INTERVAL_MS) -> list[str]:
    """The workers that `me` finds gone. A sign is a worker's name, or -name if it stops."""
    peers = Peers("me", interval_ms)
    given = [
        each
        if isinstance(each, Sign)
        else Sign(each.removeprefix("-"), INTERVAL_MS, not each.startswith("-"))
        for each in signs
    ]
    return [gone.worker for sign in given for gone in peers.hear(sign)]


def never() -> bool:
    return False


def test_a_worker_is_gone_after_some_signs_of_this_one() -> None:
    mine = ["me"] * (SIGNS + 1)
    assert gone_after("a", *mine) == ["a"]
    assert gone_after("a", *mine[1:], "a", *mine[1:]) == []
    assert gone_after("a", "b", *mine[1:], "b", "me") == ["a"]


def test_it_is_removed_once_and_may_come_back() -> None:
    mine = ["me"] * (SIGNS + 1)
    assert gone_after("a", *mine, *mine) == ["a"]
    assert gone_after("a", *mine, "a", *mine) == ["a", "a"]


def test_one_that_has_stopped_in_order_is_not_removed() -> None:
    assert gone_after("a", "-a", *["me"] * 20) == []


def test_nobody_is_gone_while_this_worker_is_paused() -> None:
    """It reads afterwards what the others have written meanwhile, before its next sign."""
    assert gone_after("a", "me", "me", "me", *["a", "b"] * 20, "me", "me", "me") == []


def test_it_never_removes_itself_or_a_worker_that_it_has_never_heard() -> None:
    assert gone_after(*["me"] * 20) == []


@pytest.mark.parametrize("slow_ms", [5_000, 750, 749])
def test_of_two_intervals_the_longer_one_counts(slow_ms: int) -> None:
    """While `failover_after_ms` is changed on one worker after the other, they have two."""
    fast_ms = INTERVAL_MS
    most = SIGNS * max(slow_ms, fast_ms) // fast_ms
    slow = Sign("slow", slow_ms)
    assert gone_after(slow, *["me"] * most, slow, *["me"] * most) == []
    assert gone_after(slow, *["me"] * (most + 1)) == ["slow"]


def test_one_that_is_slower_than_another_counts_its_own_signs() -> None:
    slow_ms = 5_000
    mine = [Sign("me", slow_ms)] * (SIGNS + 1)
    assert gone_after("fast", *mine[1:], interval_ms=slow_ms) == []
    assert gone_after("fast", *mine, interval_ms=slow_ms) == ["fast"]


def test_one_that_does_not_say_its_interval_has_the_same() -> None:
    mine = ["me"] * (SIGNS + 1)
    assert gone_after(Sign("old"), *mine[1:]) == []
    assert gone_after(Sign("old"), *mine) == ["old"]


class Signs:
    """A log in memory."""

    def __init__(self, *others: Sign) -> None:
        self.written: list[Sign] = []
        self.others = [*others]
        self.starts = self.stops = 0
        self.error: Exception | None = None

    async def start(self) -> None:
        self.starts += 1

    async def write(self, sign: Sign) -> None:
        if (error := self.error) is not None:
            self.error = None
            raise error
        self.written.append(sign)

    async def read(self) -> AsyncIterator[Sign]:
        while True:
            await asyncio.sleep(0)
            if self.others:
                yield self.others.pop(0)

    async def stop(self) -> None:
        self.stops += 1


ME = Sign("me", interval_ms=1)


async def remove_nobody(worker: str) -> None:
    raise AssertionError


async def test_it_gives_signs_removes_who_is_gone_and_says_that_it_stops() -> None:
    signs = Signs(Sign("a"), *[ME] * (SIGNS + 1))
    removed: list[str] = []

    async def remove(worker: str) -> None:
        removed.append(worker)

    gone = Sign("a", is_alive=False)
    async with running(Failover(signs, "me", SIGNS, remove, never).run()):
        await until(lambda: gone in signs.written and signs.written.count(ME) > 2)
    assert removed == ["a"]
    assert signs.written[-1] == Sign("me", is_alive=False)
    assert signs.stops == signs.starts == 1


async def test_signs_are_given_at_a_steady_pace_although_each_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time until a dead worker is replaced is counted in signs (R126)."""
    now_s, waited_s = 1_000.0, []

    class SlowSigns(Signs):
        async def write(self, sign: Sign) -> None:
            nonlocal now_s
            now_s += 0.25 if len(waited_s) < 3 else 5.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        waited_s.append(seconds)
        now_s += seconds
        if len(waited_s) == 5:
            raise asyncio.CancelledError

    giving = Failover(SlowSigns(), "me", SIGNS * 1_000, remove_nobody, never)
    loop = asyncio.get_running_loop()
    with monkeypatch.context() as patched, pytest.raises(asyncio.CancelledError):
        patched.setattr(loop, "time", lambda: now_s)
        patched.setattr(failover.asyncio, "sleep", sleep)
        await giving._give_signs()
    assert waited_s == [0.75, 0.75, 0.75, 0.0, 0.0]


async def test_one_whose_loop_is_hung_gives_no_signs_and_removes_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It would be a member for ever: heartbeats go on in the thread of the Kafka client."""
    signs, hung, asked = Signs(Sign("a"), *[ME] * SIGNS), True, 0

    def is_hung() -> bool:
        nonlocal asked
        asked += 1
        return hung

    async with running(Failover(signs, "me", SIGNS, remove_nobody, is_hung).run()):
        await until(lambda: asked > 2)
        assert signs.written == []
        assert caplog.text.count("has not turned for 30 s; it gives no more signs of life") == 1
        hung = False
        await until(lambda: ME in signs.written)
        assert "turns again" in caplog.text
    assert signs.written[-1] == Sign("me", is_alive=False)


async def test_a_loop_is_hung_if_it_does_not_turn_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(failover.time, "monotonic", lambda: now_s)
    watch = LoopWatch()
    now_s += 2 * HUNG_AFTER_S  # a worker may take long before it begins
    assert not watch.is_hung()
    async with running(watch.run()):
        await asyncio.sleep(0)
        now_s += HUNG_AFTER_S
        assert not watch.is_hung()
        now_s += 1.0
        assert watch.is_hung()


async def test_a_worker_that_cannot_be_removed_is_removed_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its machine may have had the group's coordinator, too. The signs of this one go on."""
    signs = Signs(Sign("a"), *[ME] * 2 * (SIGNS + 1))
    errors: list[Exception] = [BrokerUnreachable("b:9092", "no answer")]
    removed: list[str] = []

    async def remove(worker: str) -> None:
        if errors:
            raise errors.pop()
        removed.append(worker)

    async with running(Failover(signs, "me", SIGNS, remove, never).run()):
        await until(lambda: Sign("a", is_alive=False) in signs.written)
    assert removed == ["a"]
    assert signs.starts == 1
    assert "cannot remove worker a from the group" in caplog.text


async def test_an_error_begins_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation that comes out of a Kafka client, too."""
    monkeypatch.setattr(failover, "_RETRY_S", 0)
    signs = Signs()
    signs.error = OSError("no broker")

    async with running(Failover(signs, "me", SIGNS, remove_nobody, never).run()):
        await until(lambda: signs.starts == 2 and signs.written)
    assert signs.stops == 2


async def test_a_cancellation_that_nobody_asked_for_begins_it_again() -> None:
    told: list[BaseException] = []

    async def serve() -> None:
        if told:
            await asyncio.sleep(60)
        raise asyncio.CancelledError

    async with running(cancellation.run_again(serve, 0, told.append)):
        await until(lambda: told)
        await asyncio.sleep(0)
    assert len(told) == 1
