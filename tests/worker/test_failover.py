"""Which workers are removed from the group because they give no sign of life (R126)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ringfaust import cancellation
from ringfaust.kafka.admin import BrokerUnreachable
from ringfaust.protocol.status import SIGNS
from ringfaust.worker import failover
from ringfaust.worker.failover import Failover, Peers


def gone_after(*signs: str) -> list[str]:
    """The workers that `me` finds gone. A sign is a worker's name, or -name if it stops."""
    peers = Peers("me")
    return [
        gone
        for sign in signs
        for gone in peers.hear(sign.removeprefix("-"), is_alive=not sign.startswith("-"))
    ]


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


class Signs:
    """A log in memory."""

    def __init__(self, *others: tuple[str, bool]) -> None:
        self.written: list[tuple[str, bool]] = []
        self.others = [*others]
        self.starts = self.stops = 0
        self.error: Exception | None = None

    async def start(self) -> None:
        self.starts += 1

    async def write(self, worker: str, *, is_alive: bool) -> None:
        if (error := self.error) is not None:
            self.error = None
            raise error
        self.written.append((worker, is_alive))

    async def read(self) -> AsyncIterator[tuple[str, bool]]:
        while True:
            await asyncio.sleep(0)
            if self.others:
                yield self.others.pop(0)

    async def stop(self) -> None:
        self.stops += 1


async def until(true: object) -> None:
    async with asyncio.timeout(30):
        while not true():  # type: ignore[operator]
            await asyncio.sleep(0)


async def test_it_gives_signs_removes_who_is_gone_and_says_that_it_stops() -> None:
    signs = Signs(("a", True), *[("me", True)] * (SIGNS + 1))
    removed: list[str] = []

    async def remove(worker: str) -> None:
        removed.append(worker)

    running = asyncio.ensure_future(Failover(signs, "me", SIGNS, remove).run())
    await until(lambda: signs.written.count(("me", True)) > 2)
    assert removed == ["a"]
    assert ("a", False) in signs.written
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert signs.written[-1] == ("me", False)
    assert signs.stops == signs.starts == 1


async def test_signs_are_given_at_a_steady_pace_although_each_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time until a dead worker is replaced is counted in signs (R126)."""
    now_s, waited_s = 1_000.0, []

    class SlowSigns(Signs):
        async def write(self, worker: str, *, is_alive: bool) -> None:
            nonlocal now_s
            now_s += 0.25 if len(waited_s) < 3 else 5.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        waited_s.append(seconds)
        now_s += seconds
        if len(waited_s) == 5:
            raise asyncio.CancelledError

    async def remove(worker: str) -> None:
        raise AssertionError

    giving = Failover(SlowSigns(), "me", SIGNS * 1_000, remove)
    loop = asyncio.get_running_loop()
    with monkeypatch.context() as patched, pytest.raises(asyncio.CancelledError):
        patched.setattr(loop, "time", lambda: now_s)
        patched.setattr(failover.asyncio, "sleep", sleep)
        await giving._give_signs()
    assert waited_s == [0.75, 0.75, 0.75, 0.0, 0.0]


async def test_a_worker_that_cannot_be_removed_is_removed_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its machine may have had the group's coordinator, too. The signs of this one go on."""
    signs = Signs(("a", True), *[("me", True)] * 2 * (SIGNS + 1))
    errors: list[Exception] = [BrokerUnreachable("b:9092", "no answer")]
    removed: list[str] = []

    async def remove(worker: str) -> None:
        if errors:
            raise errors.pop()
        removed.append(worker)

    running = asyncio.ensure_future(Failover(signs, "me", SIGNS, remove).run())
    await until(lambda: ("a", False) in signs.written)
    assert removed == ["a"]
    assert signs.starts == 1
    assert "cannot remove worker a from the group" in caplog.text
    running.cancel()
    await asyncio.wait({running})


async def test_an_error_begins_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation that comes out of a Kafka client, too."""
    monkeypatch.setattr(failover, "_RETRY_S", 0)
    signs = Signs()
    signs.error = OSError("no broker")

    async def remove(worker: str) -> None:
        raise AssertionError

    running = asyncio.ensure_future(Failover(signs, "me", SIGNS, remove).run())
    await until(lambda: signs.starts == 2 and signs.written)
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert signs.stops == 2


async def test_a_cancellation_that_nobody_asked_for_begins_it_again() -> None:
    told: list[BaseException] = []

    async def serve() -> None:
        if told:
            await asyncio.sleep(60)
        raise asyncio.CancelledError

    running = asyncio.ensure_future(cancellation.run_again(serve, 0, told.append))
    await until(lambda: told)
    await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert len(told) == 1
