"""Print the plan of a redrive."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.spark.backfill.progress import Job
from ringfaust.spark.backfill.show import print_text
from ringfaust.spark.redrive.request import LakeRedrivePlan


def print_redrive_plan(out: Console, plan: LakeRedrivePlan, job: Job) -> None:
    """Print which messages a run would send, and where to."""
    table = Table("topic", "queue", "messages")
    for (topic, queue), count in sorted(plan.queues.items(), key=lambda entry: -entry[1]):
        table.add_row(escape(topic), escape(queue), f"{count:,}")
    out.print(table, highlight=False)
    print_text(
        out,
        f"{plan.profile.records:,} messages would be sent again. This job has already sent "
        f"{plan.already_sent:,}; {plan.over_limit:,} were redriven too often (--max-redrives).",
    )
    for line in plan.profile.examples:
        print_text(out, f"  {line}")
    print_text(out, f"Job {job.name}. Nothing was written.")
