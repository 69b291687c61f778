"""What the console keeps in memory: pages, searches and sorts of 10,000 queues, and the charts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ringfaust.client.errors import NoAnswer
from ringfaust.client.status_rows import (
    QueueRates,
    QueueStatus,
    StoppedPartition,
    WorkerStatus,
)
from ringfaust.console import board as board_module
from ringfaust.console.board import PAGE_QUEUES, SORTS, Board, Look, fill
from ringfaust.core.model import Counts
from tests.console.harness import (
    HOSTILE,
    FixedStatus,
    console_of,
    now_ms,
    queue_row,
    worker_row,
)

MANY = 10_000


def look_at(
    queues: Sequence[QueueStatus], workers: Sequence[WorkerStatus], brokers_silent_ms: int = 0
) -> Look:
    return Look(queues, workers, heard_ms=now_ms() - brokers_silent_ms, is_truncated=False)


@pytest.fixture(scope="module")
def look() -> Look:
    rows = [queue_row(f"queue.{n:06}", ready=n % 11, evicted=float(n % 7)) for n in range(MANY)]
    return look_at(rows, [worker_row()])


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
    look = look_at([queue_row("fine"), wrong], [worker_row()])
    assert look.totals.unbalanced == ("wrong",)
    assert Counts(ready=1, delivering=1, scheduled=1, added=6, acked=2, lost=1).balanced


def test_a_ring_is_as_full_as_its_ready_messages() -> None:
    assert fill(queue_row("q", ready=5, ring_size=10)) == 0.5
    assert fill(queue_row("q", ready=20, ring_size=10)) == 1.0
    assert fill(queue_row("q", ready=5, ring_size=-1)) == 0.0


async def test_the_past_of_watched_queues_is_kept_and_bounded() -> None:
    board = Board(FixedStatus([queue_row("a"), queue_row("b")], [worker_row()]))
    past = board.past_of("a")
    for _ in range(3):
        await board.look_now()
    assert [point.ready for point in past] == [3, 3, 3]
    assert [point.ready for point in board.past] == [6, 6, 6]
    for number in range(200):
        board.past_of(f"other-{number}")
    assert len(board._watched) == board_module._WATCHED
    assert not board.past_of("a")


def test_a_silent_worker_counts_neither_in_lag_nor_rates_nor_accounts() -> None:
    """It is partition 0's; another worker, which is heard, has partition 5."""
    wrong, other = queue_row("wrong"), replace(queue_row("other"), partition=5)
    wrong.counts.added += 1
    heard = replace(worker_row("heard"), partitions=(5,), lag={5: 2})
    look = look_at([wrong, other], [worker_row("frozen", silent_ms=11_000), heard])
    assert look.lag == 2
    assert look.totals.rates.added == 2.0
    assert (look.totals.unbalanced, look.totals.unheard) == ((), 1)
    assert look.totals.counts.ready == 6
    assert look.silence is not None
    assert look.silence.text == "frozen is silent, and nobody else has partition 0"
    assert look.silence_of(5) is None


def test_a_partition_belongs_to_who_spoke_last() -> None:
    late = replace(worker_row("late", silent_ms=8_000), lag={0: 1_000})
    look = look_at([queue_row("q")], [late, worker_row("next")])
    assert (look.lag, look.silence) == (4, None)


@pytest.mark.parametrize(
    ("worker_ms", "brokers_ms", "text"),
    [
        (11_000, 0, "no worker says anything"),
        (0, 5_000, "the Kafka brokers do not answer"),
        (3_600_000, 3_600_000, "the Kafka brokers do not answer"),
    ],
)
def test_without_news_there_is_no_lag_and_no_rate(
    worker_ms: int, brokers_ms: int, text: str
) -> None:
    look = look_at([queue_row("q")], [worker_row("w", silent_ms=worker_ms)], brokers_ms)
    assert look.silence is not None
    assert look.silence.text == text
    assert abs(now_ms() - look.silence.since_ms - (brokers_ms or worker_ms)) < 1_000
    assert look.lag is None
    assert look.totals.rates == QueueRates()
    assert look.totals.counts.ready == 3


async def test_charts_have_gaps_while_nothing_is_heard() -> None:
    status = FixedStatus([queue_row("a")], [worker_row()])
    board = Board(status)
    past = board.past_of("a")
    for silent_ms in (0, 5_000, 0):
        status.silent_ms = silent_ms
        await board.look_now()
    for points in (past, board.past):
        assert [point[1:] for point in points] == [(3, 2, 0, 0), (None,) * 4, (3, 2, 0, 0)]


async def test_pages_say_since_when_there_are_no_news() -> None:
    async with console_of([queue_row("orders")]) as console:
        assert "No news" not in await console.text("/")
        console.backend.status.silent_ms = 60_000
        await console.backend.fixed.look_now()
        for path in ("/", "/queue?name=orders", "/queue/state?name=orders", "/transactions"):
            text = await console.text(path)
            assert text.count("No news since") == 1, path
            assert "the Kafka brokers do not answer" in text
        assert 'class="old"' in await console.text("/overview/state")
        assert "every message accounted for" not in await console.text("/overview/state")
        console.backend.fake.queue.assert_not_called()


async def test_a_queue_whose_worker_does_not_answer_is_shown_as_it_was() -> None:
    async with console_of([queue_row("orders")]) as console:
        console.backend.fake.queue.side_effect = NoAnswer("no worker answers")
        text = await console.text("/queue?name=orders")
        assert "its worker has not answered" in text
        assert (await console.get("/queue?name=unknown")).status == 504


def test_a_ring_is_overwritten_at_the_rate_at_which_it_grows() -> None:
    def left(**rates: float) -> float | None:
        row = replace(queue_row("q", ready=3, ring_size=10), rates=QueueRates(**rates))
        return row.time_to_overwrite_s()

    assert left(added=2.0) == 4.0  # seven fit, the eighth pushes out the oldest
    assert left(added=2.0, acked=1.0, expired=0.5) == 16.0
    assert left() is None
    assert left(added=2.0, acked=2.0) is None
    full = replace(queue_row("q", ready=10, ring_size=10), rates=QueueRates(2.0, 1.0, 1.0))
    assert full.time_to_overwrite_s() == 1.0


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
        assert "10,000 queues" in text
        assert text.count("data-row") == PAGE_QUEUES
        assert "queue.000100" in text
        fragment = await console.text("/queues?search=009999", **{"HX-Request": "true"})
        assert "<html" not in fragment
        assert fragment.count("data-row") == 1


async def test_a_partition_that_has_stopped_is_shown_with_what_to_do() -> None:
    stopped = StoppedPartition(
        partition="2", at="orders/2/7", reason=HOSTILE, remedy="correct it", since_ms=0
    )
    worker = replace(worker_row(), stopped=(stopped,))
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
