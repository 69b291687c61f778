"""`ringfaust dead redrive` and `evicted redrive`: plan, ask, send, and print the result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringfaust.cli.operate import confirm, print_json, print_table, say
from ringfaust.cli.parts import where
from ringfaust.cli.reach import reached
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import configuration_in_use
from ringfaust.redrive.plan import CannotRedrive, RedriveContext, RedrivePlan, RedriveRequest, find
from ringfaust.redrive.reader import dead_reader
from ringfaust.redrive.send import send_messages
from ringfaust.times import time_text

if TYPE_CHECKING:
    from ringfaust.cli.dead import Redrive

_SHOWN_MESSAGES = 20
"""The most messages that a plan lists as a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivenMessage:
    """A message to send again."""

    id: str
    queue: str
    """The queue it was in."""
    sequence: int
    reason: str
    time_ms: int
    """When it died or was evicted, in ms since 1970."""
    to: str
    """The queue that it is sent to."""
    topic: str
    """The topic that it is sent to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedMessage:
    """A message that cannot be sent again."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveResult:
    """What a redrive sent, or would send."""

    sent: int
    """How many messages were sent; 0 with --dry-run."""
    already_sent: int
    """How many match but were sent before, so they are left out."""
    messages: tuple[RedrivenMessage, ...]
    refused: tuple[RefusedMessage, ...]
    application: str
    """Where it was done."""
    bootstrap_servers: str


def run(worker: WorkerConfig, queues: QueuesConfig, request: RedriveRequest, how: Redrive) -> int:
    """Redrive the messages, or show which would be redriven.

    Returns:
        0, or 1 if a message cannot be redriven.

    Raises:
        CannotRedrive: the request is impossible.
        NotConfirmed: the user did not confirm.
        RedriveStopped: the brokers failed.
        BadSelector: the selector is not valid.
        CannotRead: the topic does not exist.
    """
    chosen = (request.ids, request.reason, request.since_ms, request.selector, request.queue)
    if not any(chosen):
        text = "name the messages: give --id, --queue, --reason, --since or --selector"
        raise CannotRedrive("--id", text)
    context = asyncio.run(_context(worker, queues, request))
    plan = asyncio.run(find(context, request))
    sent = 0
    if plan.messages and not how.dry_run:
        text = f"This sends {_messages(len(plan.messages))} again {_where(request)}."
        confirm(
            f"{text} {_ring_warning(context, plan, request)}".strip(), where(worker), yes=how.yes
        )
        sent = asyncio.run(send_messages(context, plan.messages, again=request.again))
    if how.as_json:
        print_json(_result(worker, plan, request, sent))
    else:
        _print_result(plan, request, sent, where(worker), dry_run=how.dry_run)
        if how.dry_run and (warning := _ring_warning(context, plan, request)):
            say(warning)
    return 1 if plan.refused else 0


async def _context(
    worker: WorkerConfig, queues: QueuesConfig, request: RedriveRequest
) -> RedriveContext:
    """The application as it is: options may name another one than that of the files.

    Raises:
        BrokerUnreachable: no broker answers.
        CannotRead: the topic does not exist.
        CannotRedrive: it does not have the partition.
    """
    worker = await reached(worker)
    used = await configuration_in_use(worker, queues)
    async with dead_reader(worker.client_options(), worker.topic(request.role)) as reader:
        count = reader.partitions
    if request.partition is not None and request.partition >= count:
        raise CannotRedrive("--partition", f"{request.partition}: there are 0 to {count - 1}")
    worker = worker.model_copy(update={"partitions": count})
    return RedriveContext.of(worker, used.queues, used.revisions)


def _result(
    worker: WorkerConfig, plan: RedrivePlan, request: RedriveRequest, sent: int
) -> RedriveResult:
    return RedriveResult(
        application=worker.application,
        bootstrap_servers=worker.bootstrap_servers,
        sent=sent,
        already_sent=plan.already_sent,
        messages=tuple(
            RedrivenMessage(
                id=each.dead.id,
                queue=each.dead.queue,
                sequence=each.dead.sequence,
                reason=each.dead.reason,
                time_ms=each.dead.time_ms,
                to=request.to or each.dead.queue,
                topic=each.record.topic,
            )
            for each in plan.messages
        ),
        refused=tuple(RefusedMessage(id=id_, reason=reason) for id_, reason in plan.refused),
    )


def _print_result(
    plan: RedrivePlan, request: RedriveRequest, sent: int, at: str, *, dry_run: bool
) -> None:
    if dry_run:
        _print_plan(plan)
    count, done = (len(plan.messages), "would be sent") if dry_run else (sent, "sent")
    say(f"{_messages(count)} {done} again {_where(request)} ({at})")
    if plan.already_sent:
        say(f"{_messages(plan.already_sent)} sent before; --again sends them once more")
    for message_id, reason in plan.refused:
        say(f"refused {message_id}: bad_command: {reason}")


def _where(request: RedriveRequest) -> str:
    return f"to queue {request.to}" if request.to else "to the queues they were in"


def _ring_warning(context: RedriveContext, plan: RedrivePlan, request: RedriveRequest) -> str:
    """Warn that the messages can evict others. Empty if no target is a ring."""
    targets = {request.to or each.dead.queue for each in plan.messages}
    if any(context.catalog.spec(queue, {}).ring_size > 0 for queue in targets):
        return "A ring that is full evicts its oldest message for each one that enters."
    return ""


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _print_plan(plan: RedrivePlan) -> None:
    if not plan.messages:
        return
    rows = []
    for each in plan.messages[:_SHOWN_MESSAGES]:
        dead = each.dead
        at = time_text(dead.time_ms, timespec="seconds")
        rows.append((dead.id, dead.queue, dead.reason, at, each.record.topic))
    print_table(("id", "queue", "reason", "at", "to topic"), rows)
    if len(plan.messages) > _SHOWN_MESSAGES:
        say(f"… and {len(plan.messages) - _SHOWN_MESSAGES:,} more")
