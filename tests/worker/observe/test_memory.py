"""Intake pauses while the process has more memory than it may (R121)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from ringfaust.worker import app
from ringfaust.worker.faust.transport import BatchConsumer
from ringfaust.worker.observe import memory
from ringfaust.worker.observe.memory import MemoryBudget

CONTROL, IN = TP("control", 0), TP("in", 0)


class Process:
    """A process whose memory, garbage and time the test sets."""

    def __init__(self) -> None:
        self.used = self.garbage = self.frees = 0
        self.now_s = 100.0
        self.budget = MemoryBudget(
            1_000, lambda: self.used + self.garbage, self.free, lambda: self.now_s
        )

    def free(self) -> None:
        self.garbage = 0
        self.frees += 1

    def read(self) -> set[TP]:
        """What is read now."""
        self.budget.look()
        held_back = app._held_back(self.budget, "control", {CONTROL, IN})
        return {CONTROL, IN} - held_back


def test_intake_pauses_above_the_budget_and_resumes_below(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.used = 1_000
    assert process.read() == {CONTROL, IN}
    process.used = 1_001
    process.read()
    assert process.read() == {CONTROL}, "acks make room"
    process.used = 960
    assert process.read() == {CONTROL}, "it would pause again at once"
    process.used = 940
    assert process.read() == {CONTROL, IN}
    said = [record.message for record in caplog.records]
    assert [text.partition(":")[0] for text in said] == ["intake is paused", "intake continues"]


def test_a_budget_that_is_too_small_makes_the_worker_slow_and_does_not_stop_it() -> None:
    process = Process()
    process.used = 2_000
    read = []
    for _ in range(5):
        read += [process.read(), process.read()]
        process.now_s += memory.TRICKLE_S
    assert read == [{CONTROL, IN}, {CONTROL}] * 5


def test_garbage_is_collected_first_and_not_all_the_time() -> None:
    process = Process()
    process.used, process.garbage = 900, 500
    assert process.read() == {CONTROL, IN}
    assert not process.budget.is_exceeded
    process.garbage = 500
    for _ in range(9):
        process.read()
    assert (process.frees, process.budget.is_exceeded) == (1, True)
    process.now_s += 10
    process.read()
    assert (process.frees, process.budget.is_exceeded) == (2, False)


def test_the_memory_of_a_process_is_measured() -> None:
    memory.trim()
    before = memory.resident_bytes()
    held = bytearray(b"x") * (64 << 20)
    grown = memory.resident_bytes() - before
    assert grown > 60 << 20 or not before
    del held
    memory.trim()
    assert memory.resident_bytes() - before < 32 << 20


async def test_the_consumer_leaves_out_what_is_held_back() -> None:
    asked: list[Any] = []

    async def fetch(tps: frozenset[TP]) -> list[Any]:
        asked.append(tps)
        return []

    fetcher = SimpleNamespace(fetch=fetch, take_failed=list, being_read=frozenset({CONTROL, IN}))
    consumer: Any = SimpleNamespace(
        _fetcher=fetcher, _paused=set(), _paused_until_seek=set(),
        app=SimpleNamespace(held_back=lambda tps: tps & {IN}),
    )  # fmt: skip
    await BatchConsumer._next_batches(consumer)
    assert asked == [{CONTROL}]
