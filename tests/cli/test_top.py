"""`ringfaust top`, driven by its keys; and the list of workers."""

from __future__ import annotations

from typing import Any

from textual.widgets import DataTable, Static

from ringfaust.cli import top
from ringfaust.cli.top import Top
from ringfaust.cli.worker import ranges, standbys_text, state_text
from ringfaust.client import QueueCounts, QueueRates, QueueStatus, WorkerStatus


def queue(name: str, ready: int, added: float = 0.0) -> QueueStatus:
    return QueueStatus(
        queue=name, partition=0, time_ms=1, counts=QueueCounts(ready=ready, added=ready),
        rates=QueueRates(added=added), evicted_by={}, size_bytes=0, oldest_ms=1, consumers=0,
        paused=("dispatch",), settings={"ring_size": 9},
    )  # fmt: skip


def worker(name: str, **more: Any) -> WorkerStatus:
    about: dict[str, Any] = {
        "worker": name, "time_ms": 1_000, "started_ms": 0, "host": "h", "version": "1",
        "engine": "compiled", "is_ready": True, "problems": (), "partitions": (0, 1, 2, 5),
        "lag": {1: 7}, "recovering": {}, "clock_skew_ms": None, "queues": 3, "published": 3,
    }  # fmt: skip
    return WorkerStatus(**about | more)


class Known:
    """What the workers have published."""

    def __init__(self) -> None:
        self.known = {each.queue: each for each in (queue("deep", 9), queue("busy", 1, 50.0))}

    def queues(self) -> list[QueueStatus]:
        return [*self.known.values()]

    def workers(self) -> list[WorkerStatus]:
        return [worker(f"w{number}") for number in range(7)]


def names(app: Top) -> list[str]:
    table: Any = app.query_one(DataTable)
    return [str(table.get_row_at(row)[0]) for row in range(table.row_count)]


def chosen(app: Top) -> str:
    return names(app)[app.query_one(DataTable).cursor_row]


async def test_queues_are_sorted_chosen_and_followed() -> None:
    status = Known()
    app = Top("shop", status)
    async with app.run_test(size=(100, 30)) as pilot:
        assert names(app) == ["deep", "busy"]
        head = str(app.query_one("#workers", Static).render())
        assert "shop: 0 of 7 workers ready, 2 queues by depth, 10 messages" in head
        assert "w0: silent for" in head
        assert "and 2 more" in head
        await pilot.press("r")
        assert names(app) == ["busy", "deep"]
        assert chosen(app) == "deep"  # the cursor stays on its queue
        await pilot.press("up")
        assert chosen(app) == "busy"
        status.known["busy"] = queue("busy", 1, 0.0)
        status.known["fast"] = queue("fast", 2, 99.0)
        app.look()
        await pilot.pause()
        assert names(app) == ["fast", "busy", "deep"]
        assert chosen(app) == "busy"
        await pilot.press("d", "down", "up", "q")
    assert app.return_code == 0


async def test_only_the_first_queues_are_shown(monkeypatch: Any) -> None:
    monkeypatch.setattr(top, "SHOWN_QUEUES", 1)
    app = Top("shop", Known())
    async with app.run_test():
        assert names(app) == ["deep"]
        assert "1 shown" in str(app.query_one("#workers", Static).render())


def test_workers_in_a_few_words() -> None:
    assert ranges((5, 0, 1, 2)) == "0-2,5"
    assert ranges(()) == ""
    assert standbys_text(worker("w")) == "none"
    assert standbys_text(worker("w", standbys={0: 0, 1: 0})) == "0-1"
    behind = worker("w", standbys={0: 1_200, 1: 3, 4: None})
    assert standbys_text(behind) == "0-1,4 (1,203 records behind, 4 not read yet)"
    assert state_text(worker("w"), 2_000) == "ready"
    assert state_text(worker("w"), 62_000) == "silent for 1 min 1 s"
    slow = worker("w", is_ready=False, recovering={1: 1_500})
    assert state_text(slow, 2_000) == "recovering, 1,500 records left"
    assert state_text(worker("w", is_ready=False), 2_000) == "not ready"
