"""Print the verdicts of an audit, and show what it is doing on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import chain
from pathlib import Path

from rich.status import Status

from ringfaust.spark.audit.balance import Balance
from ringfaust.spark.audit.days import DayVerdict
from ringfaust.spark.audit.report.page import write_report
from ringfaust.spark.audit.show import (
    DAY_HEADING,
    day_line,
    day_row,
    finding_lines,
    json_lines,
    print_findings,
    print_verdict,
    window_lines,
)
from ringfaust.spark.audit.verdict import Verdict
from ringfaust.terminal import Terminal


class VerdictOutput:
    """What the audit says on standard output, as tables or lines of JSON.

    Args:
        application: the name of the audited application.
        status: shows the progress.
        report: folder for the report of the last verdict; None: no report.
        as_json: print lines of JSON.
    """

    def __init__(
        self, application: str, status: Status, report: Path | None, as_json: bool
    ) -> None:
        self._application = application
        self._status = status
        self._report = report
        self._as_json = as_json
        self._console = Terminal()
        self._began = time.monotonic()
        self._days: Sequence[date] = ()
        self.balanced = True
        """Whether all accounts balanced so far."""

    def begin(self, text: str) -> None:
        """Show what is being done."""
        self._began = time.monotonic()
        self._status.update(text)

    def verdict(self, verdict: Verdict) -> None:
        """Print a verdict, and write the report if one was asked for."""
        self.balanced &= verdict.balanced
        seconds = time.monotonic() - self._began
        with self._printing():
            if self._as_json:
                for line in json_lines(verdict, seconds):
                    print(line, flush=True)
            else:
                print_verdict(self._console, verdict, seconds)
            if self._report:
                page = write_report(self._report, self._application, verdict)
                print(f"report: {page}", file=sys.stderr)

    # --- closed days ------------------------------------------------------------------------------

    def begin_days(self, days: Sequence[date]) -> None:
        """Show which days are closed now."""
        self._days = days
        if days:
            if not self._as_json:
                with self._printing():
                    self._console.print(DAY_HEADING, style="dim", highlight=False)
            self._begin_day(0)

    def day(self, found: DayVerdict) -> None:
        """Print the verdict of a closed day: one line, and the findings."""
        self.balanced &= found.verdict.balanced
        seconds = time.monotonic() - self._began
        row = day_row(found.day, found.verdict, seconds)
        with self._printing():
            if self._as_json:
                print(day_line(found.day, found.verdict, seconds), flush=True)
                for line in chain(window_lines(found.verdict), finding_lines(found.verdict)):
                    print(line, flush=True)
            else:
                style = None if found.verdict.balanced else "bold red"
                self._console.print(row, style=style, highlight=False)
                print_findings(self._console, found.verdict)
        self._begin_day(self._days.index(found.day) + 1)

    def last_day(self, found: DayVerdict | None, opening: Balance | None) -> None:
        """Print the accounts of the queues at the end of the last closed day."""
        if found:
            self.begin(f"counting the messages of {found.day}")
            self.verdict(found.verdict)
        elif not self._as_json:
            last = f"{opening.day} is the last" if opening else "there is none with events"
            with self._printing():
                self._console.print(f"There is no day to close: {last}.", highlight=False)

    def earlier_faults(self, opening: Balance | None) -> None:
        """Print which days that were closed before have faults."""
        if opening and opening.faults and not self._as_json:
            days = ", ".join(opening.faults)
            text = f"Closed before with faults: {days}. Use --since to audit a day again."
            with self._printing():
                self._console.print(text, style="bold red", highlight=False)

    @contextmanager
    def _printing(self) -> Iterator[None]:
        """Take the progress off the terminal. While it is shown, it takes what is printed."""
        self._status.stop()
        try:
            yield
        finally:
            self._status.start()

    def _begin_day(self, number: int) -> None:
        if number < len(self._days):
            self.begin(f"auditing {self._days[number]}, day {number + 1} of {len(self._days)}")
