"""Charts begin with what the status topic still has."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from ringfaust.client.status_rows import QueueRates, QueueStatus
from ringfaust.console.board import Board
from ringfaust.console.history import History
from ringfaust.console.points import Point
from ringfaust.core.model import Counts
from tests.console.harness import FixedStatus, now_ms, queue_row, worker_row

AT_MS = 1_000_000


def row(second: int, ready: int, added: float = 0, queue: str = "q") -> QueueStatus:
    counts, rates = Counts(ready=ready, added=ready), QueueRates(added=added)
    return replace(queue_row(queue), time_ms=AT_MS + second * 1_000, counts=counts, rates=rates)


def history(*rows: QueueStatus | None, beats: int = 30) -> History:
    """A partition with these rows, and as many seconds of a worker's, in another."""
    found = History(AT_MS)
    for offset, each in enumerate(rows):
        if each is not None:  # None: it was compacted
            found.note(0, offset, each)
    for second in range(0, beats, 5):
        found.note(1, second // 5, replace(worker_row(), time_ms=AT_MS + second * 1_000))
    return found


def at(second: int, *numbers: float | None) -> Point:
    return Point(AT_MS / 1000 + second, *numbers)  # type: ignore[arg-type]


def test_rows_become_points_every_two_seconds() -> None:
    told = history(row(-9, 4, queue="idle"), row(0, 1, 1.0), row(3, 5, 2.0), row(5, 5), beats=6)
    zeros = (0.0, 0.0)
    assert [*told.points()] == [at(0, 5, 1.0, *zeros), at(2, 5, 1.0, *zeros), at(4, 9, 2.0, *zeros)]
    assert [each.ready for each in told.points("q")] == [1, 1, 5]
    assert [each.ready for each in told.points("idle")] == [4, 4, 4]


def test_while_no_worker_spoke_there_is_a_gap_and_no_plateau() -> None:
    told = history(row(0, 1, 9.0), row(20, 2), beats=1)
    points = [*told.points()]
    assert [point.ready for point in points] == [1] * 6 + [None] * 5
    assert points[-1] == at(20)


def test_what_was_compacted_is_not_drawn() -> None:
    told = history(row(0, 1), None, row(6, 3), row(8, 4), beats=10)
    assert [(point.time_s - 1000, point.ready) for point in told.points()] == [(6, 3), (8, 4)]


def test_a_clock_that_is_wrong_by_years_makes_no_points_of_these_years() -> None:
    since_ms = now_ms() - 10_000
    told = History(since_ms)
    for offset, time_ms in enumerate((since_ms, 1, since_ms + 4_000)):
        told.note(0, offset, replace(queue_row("q"), time_ms=time_ms))
    for offset, time_ms in enumerate((since_ms, 1 << 50)):
        told.note(1, offset, replace(worker_row(), time_ms=time_ms))
    points = [*islice(told.points(), 100)]
    assert [point.ready for point in points] == [3] * 6
    assert points[0].time_s == since_ms / 1000


async def test_the_board_begins_with_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfaust.console.board.wall_ms", lambda: AT_MS + 3_000)
    board = Board(FixedStatus([queue_row("q")], [worker_row()]))
    board.history = history(row(0, 1), row(2, 2), beats=3)
    await board.look_now()
    assert [point.ready for point in board.past] == [1, 2, 3]
    past = board.past_of("q")
    await board.look_now()
    assert [point.ready for point in past] == [1, 2, None, 3]


async def test_a_queue_that_is_looked_at_days_later_begins_now() -> None:
    board = Board(FixedStatus([queue_row("q")], [worker_row()]))
    board.history = history(row(0, 1), row(2, 2), beats=3)
    assert not board.past_of("q")
