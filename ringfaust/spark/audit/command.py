"""`ringfaust spark audit`: once, or at an interval."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import BadSetting
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.offsets import CannotAudit, require_whole, topic_offsets
from ringfaust.spark.audit.report.page import write_report
from ringfaust.spark.audit.show import json_lines, print_verdict
from ringfaust.spark.audit.sources import AuditData, from_lake, from_topics, topics_of
from ringfaust.spark.audit.verdict import AuditRequest, Verdict, reconcile
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The options of the command line."""

    lake: str | None = None
    """Folder or URI of the lake; None reads everything from the topics."""
    window: str | None = None
    """Length of a time window, such as `1h`; None counts no windows."""
    every: str | None = None
    """Time between the starts of two rounds, such as `5m`; None audits once."""
    report: Path | None = None
    """Folder for the report; None writes no report."""
    repeats_are_faults: bool = True
    """Exact repeats of a record are faults; otherwise they are only counted."""
    as_json: bool = False
    """Print lines of JSON instead of a table."""
    master: str | None = None
    """Spark's --master."""


def run(worker: WorkerConfig, queues: QueuesConfig, settings: AuditSettings) -> int:
    """Audit and print the result.

    Returns:
        The exit status: 0 if every round balanced, else 1.

    Raises:
        CannotAudit: the topics or the lake cannot be read.
        BadSetting: a duration is invalid.
    """
    window = _interval("window", settings.window) if settings.window else None
    every_s = _length("every", settings.every) if settings.every else None
    request = AuditRequest(worker, queues, window, settings.repeats_are_faults)
    spark = open_session("ringfaust audit", settings.master)
    balanced = True
    try:
        with stop_requested(interrupt=True) as stop:
            while not stop():
                began = time.monotonic()
                verdict = audit(spark, request, settings.lake)
                print_results(verdict, request, settings, time.monotonic() - began)
                balanced &= verdict.balanced
                if every_s is None:
                    break
                time.sleep(max(0.0, every_s - (time.monotonic() - began)))
    except KeyboardInterrupt:
        pass
    finally:
        spark.stop()
    return 0 if balanced else 1


def print_results(
    verdict: Verdict, request: AuditRequest, settings: AuditSettings, seconds: float
) -> None:
    """Print the verdict, and write the report if the settings ask for one."""
    if settings.as_json:
        for line in json_lines(verdict, seconds):
            print(line, flush=True)
    else:
        print_verdict(Console(), verdict, seconds)
    if settings.report:
        page = write_report(settings.report, request.worker.application, verdict)
        print(f"report: {page}", file=sys.stderr)


def audit(spark: SparkSession, request: AuditRequest, lake: str | None = None) -> Verdict:
    """Audit what the topics, or the lake, contain now.

    Topics are read one after the other. If records arrive in the meantime, a fault may only be a
    record that was not read yet. In that case everything is read a second time, and only the faults
    that both passes found are reported.

    Raises:
        CannotAudit: the topics or the lake cannot be read.
    """
    worker, queues = request.worker, request.queues
    topics = topics_of(worker, queues)
    every = [*topics["inputs"], *topics["ours"]]
    before = asyncio.run(topic_offsets(worker, every))
    if lake is None:
        require_whole(before, [worker.topic(role) for role in _WHOLE])

    def read() -> AuditData:
        if lake is None:
            return from_topics(spark, worker, queues)
        return from_lake(spark, worker, queues, lake)

    try:
        verdict = reconcile(request, read(), before)
        if not verdict.balanced:
            after = asyncio.run(topic_offsets(worker, every))
            if _end_offsets(after) != _end_offsets(before):
                verdict = reconcile(request, read(), after, confirmed_by=verdict.findings)
    except PySparkException as error:
        raise CannotAudit(f"the Spark job failed: {_first_line(error)}") from error
    return verdict


_WHOLE = (Role.EVENTS, Role.DISPATCHED, Role.EVICTED, Role.DEAD)


def _end_offsets(offsets: dict[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
    return {where: end for where, (_, end) in offsets.items()}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


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
