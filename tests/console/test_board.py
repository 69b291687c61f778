"""What the console keeps in memory: pages, searches and sorts of 100,000 queues, and the charts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from ringfaust.client.status_rows import StoppedPartition
from ringfaust.console import board as board_module
from ringfaust.console.board import PAGE_QUEUES, SORTS, Board, Look, fill
from ringfaust.core.model import Counts
from tests.console.harness import HOSTILE, FixedStatus, console_of, queue_row, worker_row

MANY = 100_000


@pytest.fixture(scope="module")
def look() -> Look:
    rows = [queue_row(f"queue.{n:06}", ready=n % 11, evicted=float(n % 7)) for n in range(MANY)]
    return Look(rows, [worker_row()], is_truncated=False)


def test_many_queues_are_paged_in_order(look: Look) -> None:
    first, second = look.page(), look.page(number=2)
    assert (first.found, first.pages) == (MANY, MANY // PAGE_QUEUES)
    assert [row.queue for row in first.rows] == [f"queue.{n:06}" for n in range(PAGE_QUEUES)]
    assert second.rows[0].queue == f"queue.{PAGE_QUEUES:06}"
    assert look.page(number=10**9).number == first.pages
    assert look.page(number=0).number == 1


def test_many_queues_are_searched(look: Look) -> None:
    found = look.page(search="0999", sort="ready", is_descending=True)
    assert found.found == sum("0999" in f"queue.{n:06}" for n in range(MANY))
    assert all("0999" in row.queue for row in found.rows)
    assert look.page(search="QUEUE.000001").found == 1
    assert look.page(search="nothing").rows == []


@pytest.mark.parametrize("sort", SORTS)
def test_many_queues_are_sorted_both_ways(look: Look, sort: str) -> None:
    key = SORTS[sort]
    for is_descending in (False, True):
        page = look.page(sort=sort, is_descending=is_descending)
        best = (max if is_descending else min)(map(key, look.rows))
        assert key(page.rows[0]) == best
        keys = [key(row) for row in page.rows]
        assert keys == sorted(keys, reverse=is_descending)


def test_only_full_or_evicting_queues_are_shown(look: Look) -> None:
    assert look.page(show="full").found == sum(n % 11 == 10 for n in range(MANY))
    assert look.page(show="evicting").found == sum(n % 7 > 0 for n in range(MANY))
    assert look.page(show="paused").found == look.page(show="unread").found == 0


def test_the_totals_are_of_all_queues(look: Look) -> None:
    totals = look.totals
    assert totals.queues == MANY
    assert totals.counts.ready == sum(n % 11 for n in range(MANY))
    assert totals.counts.added == totals.counts.ready + 7 * MANY
    assert totals.rates.added == 2.0 * MANY
    assert totals.evicted_by == {"overflow": 5 * MANY}
    assert totals.unbalanced == ()


def test_sorted_lists_are_bounded(look: Look) -> None:
    for number in range(50):
        look.page(search=f"queue.00{number:02}")
    assert len(look._orders) <= board_module._ORDERS


def test_a_queue_whose_counts_do_not_add_up_is_named() -> None:
    wrong = queue_row("wrong")
    wrong.counts.added += 1
    assert not wrong.counts.balanced
    assert Look([queue_row("fine"), wrong], [], is_truncated=False).totals.unbalanced == ("wrong",)
    assert Counts(ready=1, delivering=1, scheduled=1, added=6, acked=2, lost=1).balanced


def test_a_ring_is_as_full_as_its_ready_messages() -> None:
    assert fill(queue_row("q", ready=5, ring_size=10)) == 0.5
    assert fill(queue_row("q", ready=20, ring_size=10)) == 1.0
    assert fill(queue_row("q", ready=5, ring_size=-1)) == 0.0


async def test_the_past_of_watched_queues_is_kept_and_bounded() -> None:
    board = Board(FixedStatus([queue_row("a"), queue_row("b")], []))
    past = board.past_of("a")
    for _ in range(3):
        await board.look_now()
    assert [point.ready for point in past] == [3, 3, 3]
    assert [point.ready for point in board.past] == [6, 6, 6]
    for number in range(200):
        board.past_of(f"other-{number}")
    assert len(board._watched) == board_module._WATCHED
    assert not board.past_of("a")


async def test_a_page_waits_for_the_next_look() -> None:
    board = Board(FixedStatus([], []))
    waiting = asyncio.create_task(board.next_look())
    await asyncio.sleep(0)
    assert not waiting.done()
    look = await board.look_now()
    assert await waiting is look


async def test_the_page_of_many_queues_shows_fifty() -> None:
    async with console_of([queue_row(f"queue.{n:06}") for n in range(MANY)]) as console:
        text = await console.text("/queues?page=3&sort=name")
        assert "100,000 queues" in text
        assert text.count("data-row") == PAGE_QUEUES
        assert "queue.000100" in text
        fragment = await console.text("/queues?search=099999", **{"HX-Request": "true"})
        assert "<html" not in fragment
        assert fragment.count("data-row") == 1


async def test_a_partition_that_has_stopped_is_shown_with_what_to_do() -> None:
    stopped = StoppedPartition(
        partition="2", at="orders/2/7", reason=HOSTILE, remedy="correct it", since_ms=0
    )
    now_ms = int(time.time() * 1000)
    worker = replace(worker_row(), time_ms=now_ms, stopped=(stopped,))
    async with console_of([queue_row("orders")]) as console:
        console.backend.fixed.source = FixedStatus([], [worker])
        await console.backend.fixed.look_now()
        text = await console.text("/overview/workers")
    assert HOSTILE not in text
    assert "orders/2/7" in text
    assert "correct it" in text
    for action in ("retry", "skip"):
        assert f'action="/console/partition/{action}"' in text
    assert text.count("disabled title") == 2  # nobody has logged in


async def test_events_tell_of_each_look() -> None:
    async with console_of([queue_row("a")]) as console:
        board = console.backend.board
        async with console.client.get("/console/live?queue=a") as answer:
            assert answer.content_type == "text/event-stream"
            while not board._watched:
                looked = asyncio.create_task(board.look_now())
                await asyncio.sleep(0)
                await looked
            await board.look_now()
            lines = [await answer.content.readline() for _ in range(2)]
        assert lines[0] == b"event: tick\n"
        assert lines[1].startswith(b"data: [")
