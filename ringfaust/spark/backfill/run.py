"""Write the rows of a job and show the progress on a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from aiokafka.errors import KafkaError
from pyspark.sql import DataFrame
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.spark.backfill.progress import Job, read_progress
from ringfaust.spark.backfill.write import WriteTask, write_rows
from ringfaust.spark.errors import SPARK_ERRORS
from ringfaust.terminal import Terminal

_POLL_S = 1.0


class WriteFailed(RingfaustError):
    """The Spark job failed; committed records stay written, and the next run resumes after them."""

    def __init__(self, job: str, reason: str) -> None:
        super().__init__(
            f"job {job!r} stopped: {reason}\nEverything it committed is written once. Run the same "
            "command again to resume where it stopped"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a run."""

    job: str
    written: int
    """Records that this run wrote."""
    already_written: int
    """Records that earlier runs wrote."""
    skipped: int
    """Rows that are bad or excluded."""
    seconds: float


def write_job(rows: DataFrame, task: WriteTask, total: int, skipped: int) -> WriteResult:
    """Write the rows that are not written yet.

    Raises:
        WriteFailed: the Spark job failed.
    """
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(write_rows, rows, task)
        try:
            _show_progress(future, task.worker, task.job, task.ends)
            written = future.result()
        except SPARK_ERRORS as error:
            raise WriteFailed(task.job.name, _reason(error)) from error
        except BaseException:
            rows.sparkSession.sparkContext.cancelAllJobs()
            raise
    return WriteResult(
        job=task.job.name,
        written=written,
        already_written=total - written,
        skipped=skipped,
        seconds=time.monotonic() - started,
    )


def _show_progress(
    future: Future[int], worker: WorkerConfig, job: Job, ends: Mapping[int, int]
) -> None:
    """Show how far the slices are, until the job is done."""
    console = Terminal(stderr=True)
    if not console.is_terminal:
        return
    columns = (TextColumn(job.name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(job.name, total=sum(ends.values()))
        while not wait([future], _POLL_S).done:
            with suppress(KafkaError):
                progress = asyncio.run(read_progress(worker, job, ends))
                bars.update(bar, completed=sum(progress.values()))


def _reason(error: Exception) -> str:
    """The last line of the Python traceback if there is one, which is the task's own error."""
    text = str(error).split("\n\tat ")[0]
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "\t"))]
    return next((line for line in reversed(lines) if "Error" in line or "ringfaust" in line), text)
