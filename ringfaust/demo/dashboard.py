"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere."""

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
"""Terminal columns for the table with full queue names."""


@dataclass
class DemoState:
    """What to show. The demo updates it while it runs."""

    title: str
    total: int = 0
    positions: Counter[int] = field(default_factory=Counter)
    """By partition: the offset in the input topic that the worker has committed."""
    read_back: int = 0
    """How many records the proof has read."""
    phase: str = ""
    counts: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """The worker's counters by queue. The final result does not use them."""
    evicted: Counter[str] = field(default_factory=Counter)
    """How many evicted records the plain Kafka consumer has read, by queue."""

    @property
    def through(self) -> int:
        """How many records of the input topic the worker has committed."""
        return self.positions.total()


def open_console() -> Console:
    """Return the console; wide enough for the tables if it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDE + 8)


class Dashboard:
    """Shows the state of the demo. `say` prints a line above it."""

    def __init__(self, console: Console, state: DemoState) -> None:
        self.console = console
        self.state = state
        self._start = time.monotonic()
        self._past: deque[tuple[float, int]] = deque()
        self._plain = ""

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        line = f"[dim]{self.seconds():5.1f} s[/]  {text}"
        self.console.print(line, highlight=False, soft_wrap=True)

    def seconds(self) -> float:
        """Return the seconds since the dashboard was created."""
        return time.monotonic() - self._start

    async def show(self) -> None:
        """Keep the display up to date until cancelled."""
        terminal = self.console.is_terminal
        live = Live(console=self.console, auto_refresh=False, transient=True) if terminal else None
        with live or nullcontext():
            while True:
                self._note_rate()
                if live:
                    live.update(self._picture(), refresh=True)
                else:
                    self._print_status()
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
            return f"{state.phase}: {state.read_back:,} records read"
        if not state.through:
            return ""
        rate = f", {self._rate():,.0f}/s" if self._rate() else ""
        return (
            f"{state.phase}: {state.through:,} of {state.total:,} through the rings{rate}, "
            f"{state.evicted.total():,} evicted"
        )

    def _print_status(self) -> None:
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
    """Return an empty table of counts by queue, with further columns `more`."""
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
    """Add a queue's row; a narrow terminal gets only the last word of the queue's name."""
    name = queue if console.width >= WIDE else queue.rpartition(".")[2]
    table.add_row(name, *(f"{counts[column]:,}" for column in COLUMNS), *more)
