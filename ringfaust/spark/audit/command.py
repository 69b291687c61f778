"""`ringfaust spark audit`: once, or every so often."""

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
from ringfaust.spark.audit.offsets import CannotAudit, extents, require_whole
from ringfaust.spark.audit.show import json_lines, print_verdict
from ringfaust.spark.audit.sources import Material, from_lake, from_topics, topics_of
from ringfaust.spark.audit.verdict import Question, Verdict, look
from ringfaust.spark.report.page import write_report
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What the command line says."""

    lake: str | None = None
    """The lake's folder or URI; without it all is read from the topics."""
    window: str | None = None
    """Such as `1h`."""
    every: str | None = None
    """Such as `5m`; without it the audit is made once."""
    report: Path | None = None
    repeats_are_faults: bool = True
    as_json: bool = False
    master: str | None = None


def run(worker: WorkerConfig, queues: QueuesConfig, settings: AuditSettings) -> int:
    """Audit, and tell.

    Returns:
        The exit status: 0 balanced, 1 not; of many rounds the worst.

    Raises:
        CannotAudit: what is needed cannot be read.
        BadSetting: a length of time makes no sense.
    """
    window = _interval("window", settings.window) if settings.window else None
    every_s = _length("every", settings.every) if settings.every else None
    question = Question(worker, queues, window, settings.repeats_are_faults)
    spark = open_session("ringfaust audit", settings.master)
    balanced = True
    try:
        with stop_requested(interrupt=True) as asked:
            while not asked():
                began = time.monotonic()
                verdict = audit(spark, question, settings.lake)
                tell(verdict, question, settings, time.monotonic() - began)
                balanced &= verdict.balanced
                if every_s is None:
                    break
                time.sleep(max(0.0, every_s - (time.monotonic() - began)))
    except KeyboardInterrupt:
        pass
    finally:
        spark.stop()
    return 0 if balanced else 1


def tell(verdict: Verdict, question: Question, settings: AuditSettings, seconds: float) -> None:
    """Print the verdict, and write the report if one is wanted."""
    if settings.as_json:
        for line in json_lines(verdict, seconds):
            print(line, flush=True)
    else:
        print_verdict(Console(), verdict, seconds)
    if settings.report:
        page = write_report(settings.report, question.worker.application, verdict)
        print(f"report: {page}", file=sys.stderr)


def audit(spark: SparkSession, question: Question, lake: str | None = None) -> Verdict:
    """Audit what there is now.

    Topics are read one after the other. Where records came meanwhile, what looks wrong may only not
    have been read yet: then all is looked at again, and what is still wrong is told.

    Raises:
        CannotAudit: what is needed cannot be read.
    """
    worker, queues = question.worker, question.queues
    topics = topics_of(worker, queues)
    every = [*topics["inputs"], *topics["ours"]]
    before = asyncio.run(extents(worker, every))
    if lake is None:
        require_whole(before, [worker.topic(role) for role in _WHOLE])

    def read() -> Material:
        if lake is None:
            return from_topics(spark, worker, queues)
        return from_lake(spark, worker, queues, lake)

    try:
        verdict = look(question, read(), before)
        if not verdict.balanced:
            after = asyncio.run(extents(worker, every))
            if _ends(after) != _ends(before):
                verdict = look(question, read(), after, confirmed_by=verdict.findings)
    except PySparkException as error:
        raise CannotAudit(f"Spark could not do it: {_first_line(error)}") from error
    return verdict


_WHOLE = (Role.EVENTS, Role.DISPATCHED, Role.EVICTED, Role.DEAD)


def _ends(found: dict[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
    return {where: end for where, (_, end) in found.items()}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _split(field: str, text: str) -> tuple[int, str]:
    found = re.fullmatch(r"([1-9]\d{0,5})([smhd])", text)
    if not found:
        raise BadSetting(field, text, "write a number and s, m, h or d, such as 30s, 5m, 1h or 1d")
    return int(found[1]), found[2]


def _interval(field: str, text: str) -> str:
    number, unit = _split(field, text)
    return f"{number} {_UNITS[unit]}"


def _length(field: str, text: str) -> int:
    number, unit = _split(field, text)
    return number * _SECONDS[unit]
