"""Print the verdicts of an audit, and show what it is doing on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from rich.status import Status

from ringfaust.spark.audit.balance import Balance
from ringfaust.spark.audit.days import DayVerdict
from ringfaust.spark.audit.report.page import write_report
from ringfaust.spark.audit.show import (
    DAY_HEADING,
    day_lines,
    day_row,
    json_lines,
    print_findings,
    print_verdict,
)
from ringfaust.spark.audit.verdict import Verdict
from ringfaust.terminal import Terminal


@dataclass(slots=True)
class VerdictOutput:
    """What the audit says on standard output, as tables or lines of JSON."""

    application: str
    status: Status
    report: Path | None
    """Folder for the report of the last verdict."""
    as_json: bool
    balanced: bool = True
    """Whether all accounts balanced so far."""
    _console: Terminal = field(default_factory=Terminal)
    _began: float = 0.0
    _days: Sequence[date] = ()

    def begin(self, text: str) -> None:
        """Show what is being done."""
        self._began = time.monotonic()
        self.status.update(text)

    def verdict(self, verdict: Verdict) -> None:
        """Print a verdict, and write the report if one was asked for."""
        self.balanced &= verdict.balanced
        seconds = time.monotonic() - self._began
        with self._printing():
            if self.as_json:
                _print_lines(json_lines(verdict, seconds))
            else:
                print_verdict(self._console, verdict, seconds)
            if self.report:
                page = write_report(self.report, self.application, verdict)
                print(f"report: {page}", file=sys.stderr)

    # --- closed days ------------------------------------------------------------------------------

    def begin_days(self, days: Sequence[date]) -> None:
        """Show which days are closed now."""
        self._days = days
        if days:
            if not self.as_json:
                with self._printing():
                    self._console.print(DAY_HEADING, style="dim", highlight=False)
            self._begin_day(0)

    def day(self, found: DayVerdict) -> None:
        """Print the verdict of a closed day: one line, and the findings."""
        self.balanced &= found.verdict.balanced
        seconds = time.monotonic() - self._began
        with self._printing():
            if self.as_json:
                _print_lines(day_lines(found.day, found.verdict, seconds))
            else:
                style = None if found.verdict.balanced else "bold red"
                row = day_row(found.day, found.verdict, seconds)
                self._console.print(row, style=style, highlight=False)
                print_findings(self._console, found.verdict)
        self._begin_day(self._days.index(found.day) + 1)

    def last_day(self, found: DayVerdict | None, opening: Balance | None) -> None:
        """Print the accounts of the queues at the end of the last closed day."""
        if found:
            self.begin(f"counting the messages of {found.day}")
            self.verdict(found.verdict)
        elif not self.as_json:
            last = f"{opening.day} is the last" if opening else "there is none with events"
            with self._printing():
                self._console.print(f"There is no day to close: {last}.", highlight=False)

    def earlier_faults(self, opening: Balance | None) -> None:
        """Print which days that were closed before have faults."""
        if opening and opening.faults and not self.as_json:
            days = ", ".join(opening.faults)
            text = f"Closed before with faults: {days}. Use --since to audit a day again."
            with self._printing():
                self._console.print(text, style="bold red", highlight=False)

    @contextmanager
    def _printing(self) -> Iterator[None]:
        """Take the progress off the terminal. While it is shown, it takes what is printed."""
        self.status.stop()
        try:
            yield
        finally:
            self.status.start()

    def _begin_day(self, number: int) -> None:
        if number < len(self._days):
            self.begin(f"auditing {self._days[number]}, day {number + 1} of {len(self._days)}")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)
