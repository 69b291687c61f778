"""`ringfaust dead …` and `evicted …`: look at messages that left their queues, and redrive them."""

# ruff: noqa: PLC0415 - what is imported inside functions is slow to import

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from ringfaust.cli.operate import (
    AsJson,
    Target,
    Yes,
    print_json,
    print_json_line,
    print_list,
    print_table,
    say,
)
from ringfaust.cli.parts import group, read_time
from ringfaust.times import age_text, time_text

if TYPE_CHECKING:
    from ringfaust.protocol.dead import DeadFilter, DeadMessage
    from ringfaust.redrive.reader import DeadReader

T = TypeVar("T")

dead = group("Look at dead messages and send them again.")
evicted = group("Look at evicted messages and send them again.")

_NO_EVICTED = "no evicted message matches"
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Most messages to show.")]


class Filters(NamedTuple):
    """Which messages a command is about; see `with_options`."""

    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="The message with this id. Repeatable."),
    ] = None
    reason: Annotated[str, typer.Option(help="Messages with this reason.")] = ""
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Messages since 1h (ago), yesterday, or a time in ISO 8601."
        ),
    ] = ""
    selector: Annotated[str, typer.Option(help="Messages that match this selector.")] = ""
    queue: Annotated[
        str, typer.Option(help="Messages that were in this queue, or match this pattern.")
    ] = ""

    def fields(self) -> dict[str, Any]:
        """The same as fields of a `DeadFilter`.

        Raises:
            BadTime: `since` is not a time.
        """
        return {
            "ids": self.ids or (),
            "reason": self.reason,
            "since_ms": read_time("--since", self.since) if self.since else 0,
            "selector": self.selector,
            "queue": self.queue,
        }


class Redrive(NamedTuple):
    """How to redrive; see `with_options`."""

    to: Annotated[
        str,
        typer.Option(metavar="QUEUE", help="Queue to send them to. Default: the one they were in."),
    ] = ""
    partition: Annotated[
        int | None,
        typer.Option(min=0, help="The partition of the queue, if it cannot be determined."),
    ] = None
    again: Annotated[
        bool, typer.Option("--again", help="Also send messages that were sent again before.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent. Send nothing.")
    ] = False
    yes: Yes = False
    as_json: AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadDetails:
    """A dead or evicted message. Times are in ms since 1970."""

    id: str
    queue: str
    """Empty for a record that was undecodable, so that it never became a message."""
    sequence: int
    reason: str
    time_ms: int
    """When it died or was evicted."""
    text: str
    """What a consumer or the worker said about it."""
    cause: str
    """The id of the message that needed the space; empty: none."""
    consumer: str
    """Who held it last; empty: nobody, or it was evicted."""
    handovers: int
    redrives: int
    """How often it was sent again before."""
    enqueued_ms: int
    source: str
    """Its producer's record: topic/partition/offset."""
    record: str
    """Its record in the dead or evicted topic: topic/partition/offset."""
    size_bytes: int
    """Of key and value, as far as this record has them."""
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, message: DeadMessage) -> DeadDetails:
        """Read what the record of a message says."""
        from ringfaust.protocol import headers as h
        from ringfaust.protocol.records import place_of

        record = message.record
        return cls(
            id=message.id,
            queue=message.queue,
            sequence=message.sequence,
            reason=message.reason,
            time_ms=message.time_ms,
            text=message.said(h.TEXT),
            cause=message.said(h.CAUSE),
            consumer=message.said(h.CONSUMER),
            handovers=message.handovers,
            redrives=message.redrives,
            enqueued_ms=message.enqueued_ms,
            source=message.said(h.SOURCE),
            record=place_of(record),
            size_bytes=len(record.key or b"") + len(record.value or b""),
            key=record.key,
            value=record.value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictedCount:
    """How many messages of a queue were evicted for a reason."""

    queue: str
    reason: str
    messages: int


# --- dead -----------------------------------------------------------------------------------------


@dead.command("ls")
def list_dead(
    *, target: Target, filters: Filters, limit: Limit = 20, as_json: AsJson = False
) -> None:
    """List the latest dead messages, the newest at the end.

    Example: ringfaust dead ls --queue orders --reason rejected
    """
    found = _latest(target, "dead", filters, limit)
    titles = ("id", "queue", "reason", "at", "tries", "redriven", "text")
    nothing = "no dead message matches"
    print_list(found, titles, _dead_row, as_json=as_json, nothing=nothing, text_last=True)


def _dead_row(each: DeadDetails) -> tuple[object, ...]:
    at = time_text(each.time_ms, timespec="seconds")
    return each.id, each.queue, each.reason, at, each.handovers, each.redrives, each.text


@dead.command("redrive")
def redrive_dead(*, target: Target, filters: Filters, how: Redrive) -> None:
    """Send dead messages again, by default to the queue that each was in.

    A message that was sent before is left out, also after a redrive that was killed. If several
    records have the same id, the last one is sent. Exit status 1 if a message cannot be sent.

    Example: ringfaust dead redrive --queue orders --reason rejected --yes
    """
    redrive(target, "dead", filters, how)


# --- evicted --------------------------------------------------------------------------------------


@evicted.command("tail")
def tail(
    *,
    target: Target,
    filters: Filters,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10_000, help="Most messages to show.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new ones until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest evicted messages, the newest at the end.

    With --follow, --json prints one object a line.

    Example: ringfaust evicted tail --queue 'orders.#' --follow
    """
    if follow:
        _follow(target, filters, limit, as_json=as_json)
        return
    found = _latest(target, "evicted", filters, limit)
    titles = ("id", "queue", "reason", "cause", "at", "age", "redriven")
    print_list(found, titles, _evicted_row, as_json=as_json, nothing=_NO_EVICTED)


def _evicted_row(each: DeadDetails) -> tuple[object, ...]:
    at = time_text(each.time_ms, timespec="seconds")
    age = age_text(each.time_ms - each.enqueued_ms)
    return each.id, each.queue, each.reason, each.cause, at, age, each.redrives


@evicted.command("count")
def count(*, target: Target, filters: Filters, as_json: AsJson = False) -> None:
    """Count the evicted messages of the topic, by queue and reason.

    Example: ringfaust evicted count --since 2026-01-31T17:00:00Z
    """
    counts = _read(target, "evicted", lambda reader: reader.counts(_filter(filters)))
    found = [
        EvictedCount(queue=queue, reason=reason, messages=messages)
        for (queue, reason), messages in sorted(counts.items())
    ]
    if as_json:
        print_json(found)
    elif not found:
        say(_NO_EVICTED)
    else:
        _print_counts(found)


def _print_counts(found: list[EvictedCount]) -> None:
    reasons = sorted({each.reason for each in found})
    numbers: dict[str, dict[str, int]] = {}
    for each in found:
        numbers.setdefault(each.queue, {})[each.reason] = each.messages
    rows = [
        [queue, *(by_reason.get(reason, 0) for reason in reasons), sum(by_reason.values())]
        for queue, by_reason in numbers.items()
    ]
    print_table(("queue", *reasons, "total"), rows)


@evicted.command("redrive")
def redrive_evicted(*, target: Target, filters: Filters, how: Redrive) -> None:
    """Send evicted messages again, by default to the queue that each was in.

    It works like `dead redrive`. A queue's evicted_payload must be `full`, as it is by default.

    Example: ringfaust evicted redrive --id order-17 --to orders-parked --yes
    """
    redrive(target, "evicted", filters, how)


# --- shared ---------------------------------------------------------------------------------------


def redrive(target: Target, role: str, filters: Filters, how: Redrive) -> None:
    """Send messages of the dead or evicted topic again; see `redrive_dead`."""
    from ringfaust.cli.redrive import run
    from ringfaust.protocol.records import Role
    from ringfaust.redrive.plan import RedriveRequest

    request = RedriveRequest(
        role=Role(role), to=how.to, partition=how.partition, again=how.again, **filters.fields()
    )
    raise typer.Exit(run(*target.load(), request, how))


def _filter(filters: Filters) -> DeadFilter:
    from ringfaust.protocol.dead import DeadFilter

    return DeadFilter(**filters.fields())


def _read(target: Target, role: str, act: Callable[[DeadReader], Awaitable[T]]) -> T:
    """Do something with a reader of the dead or evicted topic, and return the result."""
    import asyncio

    from ringfaust.cli.reach import reached
    from ringfaust.redrive.reader import dead_reader

    async def read() -> T:
        worker = await reached(target.load()[0])
        options = worker.brokers().client_options
        async with dead_reader(options, worker.topic(role)) as reader:
            return await act(reader)

    return asyncio.run(read())


def _latest(target: Target, role: str, filters: Filters, limit: int) -> list[DeadDetails]:
    found = _read(target, role, lambda reader: reader.latest(_filter(filters), limit))
    return list(map(DeadDetails.of, found))


def _follow(target: Target, filters: Filters, limit: int, *, as_json: bool) -> None:
    def show(message: DeadMessage) -> None:
        details = DeadDetails.of(message)
        if as_json:
            print_json_line(details)
        else:
            say("  ".join(filter(None, map(str, _evicted_row(details)[:-1]))))

    async def read(reader: DeadReader) -> None:
        for each in await reader.latest(_filter(filters), limit):
            show(each)
        async for each in reader.follow(_filter(filters)):
            show(each)

    with suppress(KeyboardInterrupt):
        _read(target, "evicted", read)
