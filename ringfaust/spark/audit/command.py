"""`ringfaust spark audit`: once, or at an interval."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import date

from pyspark.sql import SparkSession

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import BadSetting
from ringfaust.spark.audit.balance import Balance
from ringfaust.spark.audit.days import LakeDays, last_end, read_day
from ringfaust.spark.audit.output import VerdictOutput
from ringfaust.spark.audit.rounds import audit, audit_offsets, audit_round, spark_errors
from ringfaust.spark.audit.verdict import AuditRequest
from ringfaust.spark.options import AuditOptions, Repeats
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested
from ringfaust.terminal import Terminal
from ringfaust.times import wall_ms

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def run(worker: WorkerConfig, queues: QueuesConfig, options: AuditOptions) -> int:
    """Audit and print the result.

    Returns:
        The exit status: 0 if every round and day balanced, else 1.

    Raises:
        CannotAudit: the topics, the lake or a balance cannot be read.
        BadSetting: a duration or a day is invalid.
    """
    window = _interval("window", options.window) if options.window else None
    every_s = _length("every", options.every) if options.every else None
    request = AuditRequest(worker, queues, window, options.repeats is Repeats.FAIL)
    since, end_ms = _days(options)
    with stop_requested(interrupt=True) as stop, Terminal(stderr=True).status("") as status:
        status.update("starting Spark")
        spark = open_session("ringfaust audit", options.master)
        output = VerdictOutput(worker.application, status, options.report, options.as_json)
        job = _Job(spark, request, options.lake, output)
        try:
            opening = job.opening(since)
            if every_s is None:
                opening = job.close_days(opening, end_ms, show_last=options.until is not None)
            if options.until is None:
                job.repeat(opening, every_s, stop)
        except KeyboardInterrupt:
            pass
        finally:
            spark.stop()
    return 0 if output.balanced else 1


class _Job:
    """The audits of one command."""

    def __init__(
        self, spark: SparkSession, request: AuditRequest, lake: str | None, output: VerdictOutput
    ) -> None:
        self._spark = spark
        self._request = request
        self._lake = lake
        self._output = output
        self._days: LakeDays | None = None

    def opening(self, since: date | None) -> Balance | None:
        """The balance to begin with."""
        if self._lake is None:
            return None
        self._output.begin("reading the balance of the last closed day")
        with spark_errors():
            offsets = audit_offsets(self._spark, self._request, self._lake)
            self._days = LakeDays(self._spark, self._request, self._lake, offsets)
            opening = self._days.opening(since)
        self._output.earlier_faults(opening)
        return opening

    def close_days(
        self, opening: Balance | None, end_ms: int, *, show_last: bool
    ) -> Balance | None:
        """Close the days that have ended by a time; the balance of the last one."""
        if self._days is None:
            return opening
        with spark_errors():
            days = self._days.open_days(opening, end_ms)
            if days:
                self._days.require_complete(end_ms)
            last = None
            self._output.begin_days(days)
            for last in self._days.close(days, opening):
                self._output.day(last)
            if show_last:
                self._output.last_day(last, opening)
        return last.closing if last else opening

    def repeat(
        self, opening: Balance | None, every_s: int | None, stop: Callable[[], bool]
    ) -> None:
        """Audit what is there now, once or at an interval."""
        while not stop():
            began = time.monotonic()
            self._output.begin("auditing what is new" if opening else "auditing everything")
            if every_s is None:
                verdict = audit(self._spark, self._request, self._lake, opening)
            else:
                verdict, opening = audit_round(self._spark, self._request, self._lake, opening)
            self._output.verdict(verdict)
            if every_s is None:
                break
            self._output.begin("waiting for the next round")
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))


def _days(options: AuditOptions) -> tuple[date | None, int]:
    """The first day to audit, and the time by which the days to close have ended.

    Raises:
        BadSetting: a day is invalid, or there is no lake.
    """
    since = read_day("since", options.since) if options.since else None
    until = read_day("until", options.until) if options.until else None
    for field in ("until", "since"):
        text = getattr(options, field)
        if text and options.lake is None:
            raise BadSetting(field, text, "only a lake keeps closed days: add --lake PATH")
    if options.until and options.every:
        raise BadSetting("until", options.until, "has no use with --every, which audits today")
    if since and until and since >= until:
        raise BadSetting("until", str(until), f"must be later than --since {since}")
    return since, last_end(until, wall_ms())


def _split(field: str, text: str) -> tuple[int, str]:
    offsets = re.fullmatch(r"([1-9]\d{0,5})([smhd])", text)
    if not offsets:
        raise BadSetting(field, text, "use a number and s, m, h or d, such as 30s, 5m, 1h or 1d")
    return int(offsets[1]), offsets[2]


def _interval(field: str, text: str) -> str:
    number, unit = _split(field, text)
    return f"{number} {_UNITS[unit]}"


def _length(field: str, text: str) -> int:
    number, unit = _split(field, text)
    return number * _SECONDS[unit]
