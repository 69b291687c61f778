"""Print the plan and the result of a backfill or redrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.spark.backfill.estimate import QueueEstimate
from ringfaust.spark.backfill.profile import JobProfile
from ringfaust.spark.backfill.run import WriteResult

_QUEUES_SHOWN = 20
_NUMBERS = QueueEstimate._fields[1:]
_ALWAYS = ("records", "bytes", "ring_size", "evicted")


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
