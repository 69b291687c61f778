"""What backfill and redrive print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.spark.backfill.estimate import QueueEstimate
from ringfaust.spark.backfill.profile import Survey
from ringfaust.spark.backfill.run import Outcome

_QUEUES_SHOWN = 20
_NUMBERS = QueueEstimate._fields[1:]
_ALWAYS = ("records", "bytes", "ring_size", "evicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a dry run found."""

    job: str
    topic: str
    found: Survey
    queues: Sequence[QueueEstimate]
    doubts: Sequence[str]
    """Why a real run would be refused, beside bad rows."""
    rate: float | None


def tell_plan(out: Console, plan: Plan) -> None:
    """Print what would be written, and what would become of it."""
    found = plan.found
    out.print(_queue_table(plan.queues), highlight=False)
    seconds = (
        f", {found.records / plan.rate:,.0f} s at {plan.rate:,g} a second" if plan.rate else ""
    )
    evicted = sum(queue.evicted for queue in plan.queues)
    say(
        out,
        f"{found.records:,} records, {found.bytes:,} bytes of keys and values{seconds}, for "
        f"{plan.topic}. The rings of {len(plan.queues):,} queues would evict {evicted:,} of them, "
        "if they are empty and nobody consumes.",
    )
    if found.bad:
        say(out, f"{found.bad:,} rows make no sense as records:")
        for line in found.examples:
            say(out, f"  {line}")
    for doubt in plan.doubts:
        say(out, f"It would be refused: {doubt}.")
    say(out, f"Job {plan.job}. Nothing was written.")


def _queue_table(queues: Sequence[QueueEstimate]) -> Table:
    """Those with most records; what is 0 for all of them has no column."""
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


def tell_outcome(out: Console, outcome: Outcome) -> None:
    """Print what was written."""
    say(
        out,
        f"{outcome.written:,} records written in {outcome.seconds:,.1f} s; {outcome.before:,} were "
        f"there from an earlier run; {outcome.skipped:,} rows skipped. Job {outcome.job}.",
    )


def say(out: Console, text: str) -> None:
    """Print as it is."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)
