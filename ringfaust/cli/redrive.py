"""`ringfaust redrive`: parse a time, print the plan or the result, and return the exit status."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.redrive import redrive_context
from ringfaust.kafka.redrive import CannotRedrive, RedrivePlan, RedriveRequest, find
from ringfaust.kafka.redrive_send import send

_SHOWN_MESSAGES = 20
"""The most messages that a dry run lists."""


def run(
    worker: WorkerConfig, queues: QueuesConfig, request: RedriveRequest, *, dry_run: bool
) -> int:
    """Redrive the messages, or show which would be redriven.

    Returns:
        0, or 1 if a message that was named cannot be redriven.

    Raises:
        CannotRedrive: the request is impossible.
        RedriveStopped: the brokers failed.
        BadSelector: the selector is not valid.
        CannotRead: the topic does not exist.
    """
    if not (request.ids or request.reason or request.since_ms or request.selector):
        raise CannotRedrive("--id", "which messages? Give --id, --reason, --since or --selector")
    out = Console(highlight=False, soft_wrap=True)
    context = redrive_context(worker, queues)
    plan = asyncio.run(find(context, request))
    if dry_run:
        _print_plan(out, plan)
        sent = len(plan.messages)
    else:
        sent = 0
        if plan.messages:
            sent = asyncio.run(send(context, plan.messages, again=request.again))
    done = "would be sent" if dry_run else "sent"
    out.print(f"{_messages(sent)} {done} again to queue {escape(request.to)}")
    if plan.already_sent:
        out.print(f"{_messages(plan.already_sent)} sent before; --again sends them once more")
    for message_id, reason in plan.refused:
        out.print(f"[red]refused[/] {escape(message_id)}: bad_command: {escape(reason)}")
    return 1 if plan.refused else 0


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _print_plan(out: Console, plan: RedrivePlan) -> None:
    if not plan.messages:
        return
    table = Table("id", "queue", "sequence", "reason", "at", "to topic")
    for each in plan.messages[:_SHOWN_MESSAGES]:
        dead = each.dead
        at = datetime.fromtimestamp(dead.time_ms / 1000, UTC).isoformat(timespec="milliseconds")
        row = (dead.id, dead.queue, str(dead.sequence), dead.reason, at, each.topic)
        table.add_row(*map(escape, row))
    out.print(table)
    if len(plan.messages) > _SHOWN_MESSAGES:
        out.print(f"… and {len(plan.messages) - _SHOWN_MESSAGES:,} more")
