"""`ringfaust spark audit`: once, or at an interval, with its output."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession
from rich.status import Status

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import BadSetting
from ringfaust.spark.applied import in_use, revisions
from ringfaust.spark.audit import rounds, show
from ringfaust.spark.audit.balance import Balance
from ringfaust.spark.audit.offsets import compacted_topics
from ringfaust.spark.audit.report.page import write_report
from ringfaust.spark.audit.rounds import DayVerdict, LakeDays
from ringfaust.spark.audit.sources import AuditRequest
from ringfaust.spark.audit.verdict import Verdict
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.options import AuditOptions, Repeats
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested
from ringfaust.terminal import Terminal
from ringfaust.times import length_ms, wall_ms

_MAX_S = 36_500 * 86_400


def run(worker: WorkerConfig, queues: QueuesConfig, options: AuditOptions) -> int:
    """Audit and print the result. The exit status is 0 if every round and day balanced, else 1.

    What was applied takes the place of queues.yaml (R128).

    Raises:
        BrokerUnreachable: no broker answers.
        ConfigError: what was applied is not valid for this version.
        UnsupportedLevel: this version does not support the feature level in use (R129).
        CannotAudit: the topics, the lake or a balance cannot be read.
        BadSetting: a duration or a day is invalid.
        JobFailed: Spark ended the job with an error.
    """
    window = f"{_length('window', options.window)} seconds" if options.window else None
    every_s = _length("every", options.every) if options.every else None
    since, end_ms = _days(options)
    used = in_use(worker, queues)
    routed = {route.topic for route in used.queues.routes}
    request = AuditRequest(
        worker, used.queues, window, options.repeats is Repeats.FAIL, options.lake,
        compacted=asyncio.run(compacted_topics(worker, routed)),
        earlier=tuple(revisions(worker, used).values()),
    )  # fmt: skip
    with (
        stop_requested(interrupt=True) as stop,
        Terminal(stderr=True).status("starting Spark") as status,
        brief_errors(),
    ):
        output = VerdictOutput(worker.application, status, options.report, options.as_json)
        opening: Balance | None = None
        with open_session("ringfaust audit", options.master) as spark, suppress(KeyboardInterrupt):
            if options.lake is not None:
                output.begin("reading the balance of the last closed day")
                days = LakeDays(spark, request, rounds.audit_offsets(spark, request))
                opening = days.opening(since)
                output.earlier_faults(opening)
                if every_s is None:
                    show_last = options.until is not None
                    opening = _close_days(days, output, opening, end_ms, show_last=show_last)
            if options.until is None:
                _repeat(spark, request, output, opening, every_s=every_s, stop=stop)
    return 0 if output.balanced else 1


def _close_days(
    days: LakeDays, output: VerdictOutput, opening: Balance | None, end_ms: int, *, show_last: bool
) -> Balance | None:
    """Close the days that have ended by a time; the balance of the last one."""
    open_days = days.open_days(opening, end_ms)
    if open_days:
        days.require_complete(end_ms)
    last = None
    output.begin_days(open_days)
    for last in days.close(open_days, opening):
        output.day(last)
    if show_last:
        output.last_day(last, opening)
    return last.closing if last else opening


def _repeat(
    spark: SparkSession,
    request: AuditRequest,
    output: VerdictOutput,
    opening: Balance | None,
    *,
    every_s: int | None,
    stop: Callable[[], bool],
) -> None:
    """Audit what is there now, once or at an interval."""
    while not stop():
        began = time.monotonic()
        output.begin("auditing what is new" if opening else "auditing everything")
        if every_s is None:
            output.verdict(rounds.audit(spark, request, opening))
            break
        verdict, opening = rounds.audit_round(spark, request, opening)
        output.verdict(verdict)
        output.begin("waiting for the next round")
        time.sleep(max(0.0, every_s - (time.monotonic() - began)))


def _days(options: AuditOptions) -> tuple[date | None, int]:
    """The first day to audit, and the time by which the days to close have ended."""
    since, until = _day("since", options.since), _day("until", options.until)
    for name in ("until", "since"):
        text = getattr(options, name)
        if text and options.lake is None:
            raise BadSetting(name, text, "only a lake keeps closed days: add --lake PATH")
    if options.until and options.every:
        raise BadSetting("until", options.until, "has no use with --every, which audits today")
    if since and until and since >= until:
        raise BadSetting("until", str(until), f"must be later than --since {since}")
    return since, rounds.last_end(until, wall_ms())


def _day(field: str, text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise BadSetting(field, text, "use a date in UTC, such as 2026-01-31") from error


def _length(field: str, text: str) -> int:
    """Read a length of time, in seconds."""
    try:
        seconds = length_ms(text) // 1_000
    except ValueError as error:
        raise BadSetting(field, text, str(error)) from None
    if not 1 <= seconds <= _MAX_S:
        raise BadSetting(field, text, "use at least 1s, and at most 36500d")
    return seconds


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
        """Show what is being done until something is printed, which a status would capture."""
        self._began = time.monotonic()
        self.status.update(text)
        self.status.start()

    def verdict(self, verdict: Verdict) -> None:
        """Print a verdict, and write the report if one was asked for."""
        seconds = self._end(verdict)
        if self.as_json:
            _print_lines(show.json_lines(verdict, seconds))
        else:
            show.print_verdict(self._console, verdict, seconds)
        if self.report:
            page = write_report(self.report, self.application, verdict)
            print(f"report: {page}", file=sys.stderr)

    # --- closed days ------------------------------------------------------------------------------

    def begin_days(self, days: Sequence[date]) -> None:
        """Show which days are closed now."""
        self._days = days
        if days:
            self._say(show.DAY_HEADING, "dim")
            self._begin_day(0)

    def day(self, found: DayVerdict) -> None:
        """Print the verdict of a closed day: one line, and the findings."""
        verdict, seconds = found.verdict, self._end(found.verdict)
        if self.as_json:
            _print_lines(show.day_lines(found.day, verdict, seconds))
        else:
            row = show.day_row(found.day, verdict, seconds)
            self._say(row, None if verdict.balanced else "bold red")
            show.print_findings(self._console, verdict)
        self._begin_day(self._days.index(found.day) + 1)

    def last_day(self, found: DayVerdict | None, opening: Balance | None) -> None:
        """Print the accounts of the queues at the end of the last closed day."""
        if found:
            self.begin(f"counting the messages of {found.day}")
            self.verdict(found.verdict)
        else:
            last = f"{opening.day} is the last" if opening else "there is none with events"
            self._say(f"There is no day to close: {last}.")

    def earlier_faults(self, opening: Balance | None) -> None:
        """Print which days that were closed before have faults."""
        if opening and opening.faults:
            days = ", ".join(opening.faults)
            text = f"Closed before with faults: {days}. Use --since to audit a day again."
            self._say(text, "bold red")

    def _say(self, text: str, style: str | None = None) -> None:
        """Print a text, unless the output is JSON."""
        if not self.as_json:
            self.status.stop()
            self._console.print(text, style=style, highlight=False)

    def _end(self, verdict: Verdict) -> float:
        """Stop the status and count a verdict. Returns the seconds since work on it began."""
        self.status.stop()
        self.balanced &= verdict.balanced
        return time.monotonic() - self._began

    def _begin_day(self, number: int) -> None:
        if number < len(self._days):
            self.begin(f"auditing {self._days[number]}, day {number + 1} of {len(self._days)}")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)
