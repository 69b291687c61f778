"""`ringfaust top`: queues and workers live, in a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static

from ringfaust.cli.operate import Target, connect_options
from ringfaust.cli.reach import reached, started
from ringfaust.cli.worker import ranges, state_text
from ringfaust.client import QueueStatus, StatusReader, WorkerStatus
from ringfaust.times import age_text, wall_ms
from ringfaust.visible import visible

SHOWN_QUEUES = 200
REFRESH_S = 1.0
_SHOWN_WORKERS = 5
_COLUMNS = (
    "queue", "ready", "ring", "flight", "sched", "in/s", "acked/s", "evicted/s", "oldest", "paused",
)  # fmt: skip


class Status(Protocol):
    """The part of `StatusReader` that is shown."""

    def queues(self) -> list[QueueStatus]:
        """All queues."""

    def workers(self) -> list[WorkerStatus]:
        """All workers."""


def _depth(queue: QueueStatus) -> float:
    return queue.counts.messages


def _rate(queue: QueueStatus) -> float:
    return queue.rates.added + queue.rates.acked + queue.rates.evicted


_ORDERS: dict[str, Callable[[QueueStatus], float]] = {"depth": _depth, "rate": _rate}


class Top(App[None]):
    """The screen: a line for each worker, a table of queues."""

    CSS = "Static { height: auto; } DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "sort('depth')", "by depth"),
        Binding("r", "sort('rate')", "by rate"),
        Binding("q", "quit", "quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, application: str, status: Status) -> None:
        """`status`: what the workers publish."""
        super().__init__()
        self._application = application
        self._status = status
        self._order = "depth"

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        yield Static(id="workers")
        yield DataTable(cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known, and again every second."""
        self.query_one(DataTable).add_columns(*_COLUMNS)
        self.look()
        self.set_interval(REFRESH_S, self.look)

    def action_sort(self, order: str) -> None:
        """Sort the queues by depth or rate."""
        self._order = order
        self.look()

    def look(self) -> None:
        """Show what is known now. The cursor stays on its queue."""
        now_ms = wall_ms()
        queues = self._status.queues()
        self.query_one("#workers", Static).update(self._head(queues, now_ms))
        key = _ORDERS[self._order]
        first = sorted(queues, key=lambda each: (-key(each), each.queue))[:SHOWN_QUEUES]
        table: DataTable[Text] = self.query_one(DataTable)
        at = table.cursor_row
        chosen = str(table.get_row_at(at)[0]) if table.row_count > at >= 0 else ""
        table.clear()
        for each in first:
            table.add_row(*_cells(each, now_ms), key=each.queue)
        names = [visible(each.queue) for each in first]
        table.move_cursor(row=names.index(chosen) if chosen in names else 0)

    def _head(self, queues: Sequence[QueueStatus], now_ms: int) -> Text:
        workers = self._status.workers()
        ready = sum(each.is_ready and not each.is_stale(now_ms) for each in workers)
        messages = sum(each.counts.messages for each in queues)
        hidden = f", {SHOWN_QUEUES} shown" if len(queues) > SHOWN_QUEUES else ""
        lines = [
            f"{self._application}: {ready} of {len(workers)} workers ready, {len(queues):,} queues "
            f"by {self._order}{hidden}, {messages:,} messages"
        ]
        for each in workers[:_SHOWN_WORKERS]:
            lag = sum(each.lag.values())
            lines.append(
                f"  {each.worker}: {state_text(each, now_ms)}, "
                f"partitions {ranges(each.partitions) or 'none'}, lag {lag:,}"
            )
        if len(workers) > _SHOWN_WORKERS:
            lines.append(f"  and {len(workers) - _SHOWN_WORKERS} more: see ringfaust worker ls")
        return Text(visible("\n".join(lines), keeps_lines=True))


def _cells(queue: QueueStatus, now_ms: int) -> list[Text]:
    """A row of the table. Numbers are set flush right."""
    counts, rates = queue.counts, queue.rates
    ring = f"{queue.ring_size:,}" if queue.ring_size > 0 else "-"
    numbers = [
        f"{counts.ready:,}", ring, f"{counts.delivering:,}", f"{counts.scheduled:,}",
        *(f"{rate:,.1f}" for rate in (rates.added, rates.acked, rates.evicted)),
        age_text(max(now_ms - queue.oldest_ms, 0)) if queue.oldest_ms else "-",
    ]  # fmt: skip
    return [
        Text(visible(queue.queue)),
        *(Text(number, justify="right") for number in numbers),
        Text(", ".join(queue.paused)),
    ]


def run(target: Target) -> None:
    """Show the application until q or Ctrl-C."""

    async def show() -> None:
        worker = await reached(target.load()[0])
        async with started(StatusReader(**connect_options(worker)), worker) as status:
            await Top(worker.application, status).run_async()

    asyncio.run(show())
