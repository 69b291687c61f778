"""`ringfaust spark redrive`: dead or evicted messages of the lake go back to their topics (R43).

Spark finds the messages and checks them. `ringfaust.redrive` sends them, like those of every other
redrive, and remembers which.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

from pyspark.sql import SparkSession
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.redrive.send import send
from ringfaust.spark.applied import in_use
from ringfaust.spark.backfill.errors import BadRows
from ringfaust.spark.backfill.show import WriteFailed, WriteResult, print_result, print_text
from ringfaust.spark.errors import SPARK_ERRORS, brief_errors, first_line
from ringfaust.spark.options import RedriveOptions
from ringfaust.spark.redrive.candidates import LakeCandidates, LakeRedrivePlan
from ringfaust.spark.redrive.records import LakeRedriveRequest
from ringfaust.spark.session import open_session
from ringfaust.terminal import Terminal


def run(worker: WorkerConfig, queues: QueuesConfig, options: RedriveOptions) -> None:
    """Run the redrive, or its dry run, in a session of its own and print the result.

    What was applied takes the place of queues.yaml (R128).

    Raises:
        JobFailed: Spark ended the job with an error.
        RingfaustError: see `redrive`.
    """
    used = in_use(worker, queues)
    request = LakeRedriveRequest(worker, used.queues, options, used.revisions)
    out = Terminal()
    with open_session(f"{worker.application} redrive", options.master) as spark, brief_errors():
        if options.dry_run:
            _print_plan(out, plan(spark, request), request.job)
        else:
            print_result(out, redrive(spark, request))


def plan(spark: SparkSession, request: LakeRedriveRequest) -> LakeRedrivePlan:
    """The dry run: find which messages a run would send, and where to. Writes nothing."""
    with closing(LakeCandidates(spark, request)) as candidates:
        candidates.refuse_maybe_sent()
        return candidates.plan


def redrive(spark: SparkSession, request: LakeRedriveRequest) -> WriteResult:
    """Send each matching message once, except those that a redrive has sent before.

    Raises:
        CannotBackfill: the condition does not fit the lake, or a topic is missing or has no route.
        OtherJob: a job of that name had another condition in an earlier version.
        UnknownRedriven: a later version has written which messages were sent before.
        BadRows: some messages would reach no queue; nothing was sent.
        MaybeSent: another job of an earlier version may have sent some of them; none was sent now.
        RedriveStopped: the brokers failed; everything that was committed is sent once.
        WriteFailed: Spark failed; everything that was committed is sent once.
    """
    with closing(LakeCandidates(spark, request)) as candidates:
        profile = candidates.plan.profile
        if profile.bad:
            raise BadRows(
                profile.bad,
                profile.examples,
                "Exclude them with --where, or use --to-topic",
            )
        candidates.share_earlier()
        candidates.refuse_maybe_sent()
        started = time.monotonic()
        return WriteResult(
            job=request.job,
            written=_send(candidates, request) if profile.records else 0,
            already_written=candidates.plan.already_sent,
            skipped=candidates.plan.over_limit,
            seconds=time.monotonic() - started,
        )


def _send(candidates: LakeCandidates, request: LakeRedriveRequest) -> int:
    """Send the messages, and show the progress on a terminal."""
    console = Terminal(stderr=True)
    columns = (TextColumn(request.job), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    is_shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bars:
        bar = bars.add_task(request.job, total=candidates.plan.profile.records)
        sending = send(
            candidates.context,
            candidates,
            again=request.options.again,
            rate=request.options.rate,
            said=lambda sent: bars.update(bar, completed=sent),
        )
        try:
            return asyncio.run(sending)
        except SPARK_ERRORS as error:
            raise WriteFailed(request.job, first_line(error)) from error


def _print_plan(out: Terminal, plan: LakeRedrivePlan, job: str) -> None:
    """Print which messages a run would send, and where to."""
    table = Table("topic", "queue", "messages")
    for (topic, queue), count in sorted(plan.queues.items(), key=lambda entry: -entry[1]):
        table.add_row(escape(topic), escape(queue), f"{count:,}")
    out.print(table, highlight=False)
    print_text(
        out,
        f"{plan.profile.records:,} messages would be sent again. {plan.already_sent:,} "
        f"were sent before; {plan.over_limit:,} were redriven too often (--max-redrives).",
    )
    for line in plan.profile.examples:
        print_text(out, f"  {line}")
    print_text(out, f"Job {job}. Nothing was written.")
