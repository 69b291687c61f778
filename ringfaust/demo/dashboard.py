"""What is shown while the demo runs: a table that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

RING_SIZE = 50
COLUMNS = (
    "added", "acked", "evicted", "expired", "dead", "ready", "delivering", "scheduled",
)  # fmt: skip
_LIVE_SECONDS = 0.25
_PLAIN_SECONDS = 2.0
_RATE_SECONDS = 2.0
WIDE = 92
"""Columns that the table with whole queue names takes."""


@dataclass
class DemoState:
    """What is to be shown; the play writes it."""

    title: str
    total: int = 0
    positions: Counter[int] = field(default_factory=Counter)
    """By partition: how far in the input topic the worker has committed."""
    read_back: int = 0
    """Records that the proof has read."""
    phase: str = ""
    counts: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """By queue, as the worker tells; the end result is not taken from here."""
    evicted: Counter[str] = field(default_factory=Counter)
    """By queue, as the independent consumer reads them."""

    @property
    def through(self) -> int:
        """Records of the input topic that the worker has behind it."""
        return self.positions.total()


def open_console() -> Console:
    """Where the demo is told; wide enough for its tables where no terminal says how wide it is."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDE + 8)


class Dashboard:
    """Shows the state until cancelled; `say` puts a line above it."""

    def __init__(self, console: Console, state: DemoState) -> None:
        self.console = console
        self.state = state
        self._start = time.monotonic()
        self._past: deque[tuple[float, int]] = deque()
        self._plain = ""

    def say(self, text: str) -> None:
        """One line that stays."""
        line = f"[dim]{self.seconds():5.1f} s[/]  {text}"
        self.console.print(line, highlight=False, soft_wrap=True)

    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._start

    async def show(self) -> None:
        """Keep it moving."""
        terminal = self.console.is_terminal
        live = Live(console=self.console, auto_refresh=False, transient=True) if terminal else None
        with live or nullcontext():
            while True:
                self._note_rate()
                if live:
                    live.update(self._picture(), refresh=True)
                else:
                    self._tell_plainly()
                await asyncio.sleep(_LIVE_SECONDS if live else _PLAIN_SECONDS)

    def _note_rate(self) -> None:
        now = self.seconds()
        self._past.append((now, self.state.through))
        while now - self._past[0][0] > _RATE_SECONDS:
            self._past.popleft()

    def _rate(self) -> float:
        (first, before), (last, after) = self._past[0], self._past[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def _status(self) -> str:
        state = self.state
        if state.read_back:
            return f"{state.phase}: {state.read_back:,} records read back"
        if not state.through:
            return ""
        rate = f", {self._rate():,.0f}/s" if self._rate() else ""
        return (
            f"{state.phase}: {state.through:,} of {state.total:,} through the rings{rate}, "
            f"{state.evicted.total():,} overwritten"
        )

    def _tell_plainly(self) -> None:
        status = self._status()
        if status and status != self._plain:
            self._plain = status
            self.say(status)

    def _picture(self) -> RenderableType:
        state = self.state
        status = Text(f"{self.seconds():5.1f} s  {self._status() or 'waiting for the worker'}")
        if not state.counts:
            return status
        table = count_table(self.console, state.title)
        for queue, counts in sorted(state.counts.items(), key=lambda entry: -entry[1]["added"]):
            add_counts(self.console, table, queue, counts)
        return Group(table, status)


def count_table(console: Console, title: str, *more: str) -> Table:
    """An empty table of counts by queue."""
    gap = 1 if console.width >= WIDE else 0
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, gap, 0, 0), title_justify="left")
    table.add_column("queue", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for name in more:
        table.add_column(name, no_wrap=True)
    return table


def add_counts(
    console: Console, table: Table, queue: str, counts: Mapping[str, Any], *more: str
) -> None:
    """One row; on a narrow terminal with the last word of the queue's name only."""
    name = queue if console.width >= WIDE else queue.rpartition(".")[2]
    table.add_row(name, *(f"{counts[column]:,}" for column in COLUMNS), *more)
