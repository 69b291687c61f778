"""`ringfaust redrive`: what is read from the command line, what is printed, and the exit status."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from aiokafka.errors import KafkaError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.kafka.redrive import (
    CannotRedrive,
    RedriveMessage,
    RedrivePlan,
    RedriveRequest,
    find,
    send,
)

_SHOWN = 20
"""Messages that a dry run lists."""


def run(worker: WorkerConfig, queues: QueuesConfig, asked: RedriveRequest, *, dry_run: bool) -> int:
    """Do it, or tell what would be done. 1 if a message that was named cannot be sent again.

    Raises:
        CannotRedrive: it cannot be done, or the brokers did not take it.
        BadSelector: the selector is none.
        CannotRead: the topic is not there.
    """
    if not (asked.ids or asked.reason or asked.since_ms or asked.selector):
        raise CannotRedrive("--id", "which messages? Give --id, --reason, --since or --selector")
    out = Console(highlight=False, soft_wrap=True)
    found = asyncio.run(find(worker, queues, asked))
    if dry_run:
        _tell_plan(out, found)
    elif found.messages:
        try:
            asyncio.run(send(worker, found.messages))
        except KafkaError as error:
            raise CannotRedrive("--to", f"the brokers did not take them: {error!r}") from error
    done = "would be sent" if dry_run else "sent"
    out.print(f"{_count(found.messages)} {done} again to queue {escape(asked.to)}")
    for message_id, why in found.refused:
        out.print(f"[red]refused[/] {escape(message_id)}: bad_command: {escape(why)}")
    return 1 if found.refused else 0


def read_time(text: str) -> int:
    """A time of the command line, in ms since 1970; without a zone it is UTC.

    Raises:
        CannotRedrive: it is none.
    """
    if text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        advice = "such as 2026-01-31T17:05:00Z, or ms since 1970"
        raise CannotRedrive("--since", f"{text!r} is no time; {advice}") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _tell_plan(out: Console, found: RedrivePlan) -> None:
    if not found.messages:
        return
    table = Table("id", "queue", "sequence", "reason", "at", "by topic")
    for each in found.messages[:_SHOWN]:
        gone = each.gone
        at = datetime.fromtimestamp(gone.time_ms / 1000, UTC).isoformat(timespec="milliseconds")
        row = (gone.id, gone.queue, str(gone.sequence), gone.reason, at, each.topic)
        table.add_row(*map(escape, row))
    out.print(table)
    if len(found.messages) > _SHOWN:
        out.print(f"… and {len(found.messages) - _SHOWN:,} more")


def _count(messages: list[RedriveMessage]) -> str:
    return "1 message" if len(messages) == 1 else f"{len(messages):,} messages"
