"""Write a job's rows, whatever they were made of, with progress on a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from aiokafka.errors import KafkaError
from pyspark.sql import DataFrame
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.spark.backfill.progress import Job, read_marks
from ringfaust.spark.backfill.source import SPARK_ERRORS
from ringfaust.spark.backfill.write import Told, Writing, write_rows

_LOOK_SECONDS = 1.0


class WriteFailed(RingfaustError):
    """Spark gave up; what was committed stays, and the next run goes on behind it."""

    def __init__(self, job: str, reason: str) -> None:
        super().__init__(
            f"job {job!r} stopped: {reason}\nWhat it has committed is written once. Run the same "
            "command again: it goes on where it stopped"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run did.

    Attributes:
        job: its name.
        written: records written now.
        before: records that an earlier run had written.
        skipped: rows that make no sense, or are not to be written.
        seconds: how long the writing took.
    """

    job: str
    written: int
    before: int
    skipped: int
    seconds: float


def write_job(rows: DataFrame, writing: Writing, total: int, skipped: int) -> Outcome:
    """Write the rows that are not written yet.

    Args:
        rows: as `write_rows` takes them.
        writing: how.
        total: how many rows there are.
        skipped: for the outcome.

    Raises:
        WriteFailed: Spark gave up.
    """
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(write_rows, rows, writing)
        try:
            _watch(future, writing.worker, writing.job, writing.ends)
            told = future.result()
        except SPARK_ERRORS as error:
            raise WriteFailed(writing.job.name, _reason(error)) from error
        except BaseException:
            rows.sparkSession.sparkContext.cancelAllJobs()
            raise
    written = sum(each.written for each in told)
    return Outcome(
        job=writing.job.name,
        written=written,
        before=total - written,
        skipped=skipped,
        seconds=time.monotonic() - started,
    )


def _watch(
    future: Future[list[Told]], worker: WorkerConfig, job: Job, ends: Mapping[int, int]
) -> None:
    """Show how far the slices have come, until all is done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return
    columns = (TextColumn(job.name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(job.name, total=sum(ends.values()))
        while not wait([future], _LOOK_SECONDS).done:
            with suppress(KafkaError):
                marks = asyncio.run(read_marks(worker, job, ends))
                progress.update(task, completed=sum(marks.values()))


def _reason(error: Exception) -> str:
    """The last line of the Python traceback, if there is one: what a task raised."""
    text = str(error).split("\n\tat ")[0]
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "\t"))]
    return next((line for line in reversed(lines) if "Error" in line or "ringfaust" in line), text)
