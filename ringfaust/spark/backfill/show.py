"""Write the rows of a backfill, showing the progress; print the plan and the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from aiokafka.errors import KafkaError
from pyspark.sql import DataFrame
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ringfaust.errors import RingfaustError
from ringfaust.spark.backfill.estimate import QueueEstimate
from ringfaust.spark.backfill.job import JobProfile, read_progress
from ringfaust.spark.backfill.write import WriteTask, write_rows
from ringfaust.spark.errors import SPARK_ERRORS
from ringfaust.terminal import Terminal

_POLL_S = 1.0
_QUEUES_SHOWN = 20
_NUMBERS = QueueEstimate._fields[1:]
_ALWAYS = ("records", "bytes", "ring_size", "evicted")


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
            _show_progress(future, task)
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


def _show_progress(future: Future[int], task: WriteTask) -> None:
    """Show how far the slices are, until the job is done."""
    console = Terminal(stderr=True)
    if not console.is_terminal:
        return
    job = task.job
    columns = (TextColumn(job.name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(job.name, total=sum(task.ends.values()))
        while not wait([future], _POLL_S).done:
            with suppress(KafkaError):
                progress = asyncio.run(read_progress(task.worker, job, task.ends))
                bars.update(bar, completed=sum(progress.values()))


def _reason(error: Exception) -> str:
    """The last line of the Python traceback if there is one, which is the task's own error."""
    text = str(error).split("\n\tat ")[0]
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "\t"))]
    return next((line for line in reversed(lines) if "Error" in line or "ringfaust" in line), text)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """The result of a dry run."""

    job: str
    topic: str
    profile: JobProfile
    queues: Sequence[QueueEstimate]
    objections: Sequence[str]
    """Reasons other than bad rows for which a real run would be refused."""
    rate: float | None
    """Records per second, over all tasks; None: unlimited."""


def print_plan(out: Console, plan: BackfillPlan) -> None:
    """Print what would be written, and what the rings would do."""
    found = plan.profile
    out.print(_queue_table(plan.queues), highlight=False)
    seconds = (
        f", {found.records / plan.rate:,.0f} s at {plan.rate:,g} per second" if plan.rate else ""
    )
    evicted = sum(queue.evicted for queue in plan.queues)
    print_text(
        out,
        f"{found.records:,} records, {found.bytes:,} bytes of keys and values{seconds}, for "
        f"{plan.topic}. The rings of {len(plan.queues):,} queues would evict {evicted:,} of them "
        "if they are empty and have no consumers.",
    )
    if found.bad:
        print_text(out, f"{found.bad:,} rows are no valid records:")
        for line in found.examples:
            print_text(out, f"  {line}")
    for objection in plan.objections:
        print_text(out, f"A run would be refused: {objection}.")
    print_text(out, f"Job {plan.job}. Nothing was written.")


def _queue_table(queues: Sequence[QueueEstimate]) -> Table:
    """The queues with the most records; a figure that is 0 everywhere has no column."""
    most = sorted(queues, key=lambda queue: (-queue.records, queue.queue))
    names = [name for name in _NUMBERS if name in _ALWAYS or any(getattr(q, name) for q in most)]
    table = Table()
    table.add_column("queue", overflow="fold")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    for queue in most[:_QUEUES_SHOWN]:
        table.add_row(escape(queue.queue), *(f"{getattr(queue, name):,}" for name in names))
    if rest := most[_QUEUES_SHOWN:]:
        sums = {name: sum(getattr(queue, name) for queue in rest) for name in names}
        shown = ["" if name == "ring_size" else f"{sums[name]:,}" for name in names]
        table.add_row(f"{len(rest):,} more", *shown)
    return table


def print_result(out: Console, result: WriteResult) -> None:
    """Print how much was written."""
    print_text(
        out,
        f"{result.written:,} records written in {result.seconds:,.1f} s; "
        f"{result.already_written:,} were written by an earlier run; {result.skipped:,} rows "
        f"skipped. Job {result.job}.",
    )


def print_text(out: Console, text: str) -> None:
    """Print plain text, without markup or line breaks."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)
