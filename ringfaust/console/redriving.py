"""Dead and evicted messages: find the latest, plan to send some again, and send them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ringfaust.client import Admin
from ringfaust.client.errors import Refused
from ringfaust.client.inspected import Excerpt
from ringfaust.config import WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.protocol import headers as h
from ringfaust.protocol.dead import DeadFilter, DeadMessage
from ringfaust.protocol.records import Role
from ringfaust.protocol.redrive import message_headers
from ringfaust.redrive.plan import (
    RedriveContext,
    RedriveMessage,
    RedrivePlan,
    RedriveRequest,
    plan_for,
)
from ringfaust.redrive.reader import Cursor, dead_reader
from ringfaust.redrive.send import send_messages

Kind = Literal["dead", "evicted"]
Position = tuple[int, int]
"""Partition and offset of a record of the dead or evicted topic."""
_BODY_BYTES = 2_000
MOST_REDRIVEN = 2_000
"""Most messages that are redriven at once when all that match are wanted: the latest."""
_sending = asyncio.Lock()
"""A redrive that starts stops one that runs, so there is one at a time."""


@dataclass(frozen=True, slots=True)
class AllBefore:
    """All messages that match and died or were evicted before a place, so none that come later."""

    filter: DeadFilter
    before: Cursor


Wanted = Collection[Position] | AllBefore
"""Which messages to redrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneMessage:
    """A dead or evicted message, as a page shows it."""

    id: str
    queue: str
    """Empty: its record was undecodable, so it never became a message."""
    reason: str
    time_ms: int
    """When it died or was evicted, in ms since 1970."""
    age_ms: int
    """How old it was then."""
    text: str
    """The consumer's text, or the id of the message that needed the space."""
    handovers: int
    redrives: int
    source: str
    """Its producer's record: topic/partition/offset."""
    position: Position
    key: Excerpt | None = None
    value: Excerpt | None
    headers: Mapping[str, Excerpt | None] = field(default_factory=dict)
    """The producer's, and those of ours that a redrive keeps."""

    @property
    def cursor(self) -> Cursor:
        """Where it is among the others."""
        return Cursor(self.time_ms, self.position[1], self.position[0])

    @classmethod
    def of(cls, dead: DeadMessage, body_bytes: int = _BODY_BYTES) -> GoneMessage:
        """Read what the record says, and up to so much of its body."""
        record = dead.record
        return cls(
            id=dead.id,
            queue=dead.queue,
            reason=dead.reason,
            time_ms=dead.time_ms,
            age_ms=max(dead.time_ms - dead.enqueued_ms, 0),
            text=dead.said(h.TEXT) or dead.said(h.CAUSE),
            handovers=dead.handovers,
            redrives=dead.redrives,
            source=dead.said(h.SOURCE),
            position=(record.partition, record.offset),
            key=_excerpt(record.key, _BODY_BYTES),
            value=_excerpt(record.value, body_bytes),
            headers={
                name: _excerpt(each, _BODY_BYTES) for name, each in message_headers(record.headers)
            },
        )


def _excerpt(raw: bytes | None, most: int) -> Excerpt | None:
    return None if raw is None else Excerpt(start=raw[:most], size_bytes=len(raw))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a redrive of some messages would do."""

    sent: Sequence[tuple[GoneMessage, str]]
    """Each message with the topic that it is sent to."""
    refused: Sequence[tuple[str, str]]
    """Ids with the reason for each."""
    already_sent: int
    full: Mapping[str, int]
    """Queues whose rings have less room than messages come: how many others they evict."""


class Redriver:
    """Finds and redrives the messages of one application."""

    def __init__(self, worker: WorkerConfig, in_use: Callable[[], Awaitable[InUse]]) -> None:
        """`in_use`: returns the configuration in use, whose routes may change (R128)."""
        self._worker = worker
        self._in_use = in_use

    async def latest(
        self, kind: Kind, limit: int, wanted: DeadFilter, before: Cursor | None = None
    ) -> list[GoneMessage]:
        """The latest messages that match, the newest first.

        Args:
            kind: which topic.
            limit: the most messages.
            wanted: which messages.
            before: only those that died or were evicted before that place.

        Raises:
            BadSelector: the selector is not valid.
            CannotRead: the topic does not exist.
            KafkaError: the brokers failed.
        """
        async with dead_reader(self._worker.client_options(), self._worker.topic(kind)) as reader:
            found = await reader.latest(wanted, limit, before)
        return [GoneMessage.of(each) for each in reversed(found)]

    async def at(self, kind: Kind, position: Position, body_bytes: int) -> GoneMessage | None:
        """One message, with up to so much of its body; None: its record is gone.

        Raises:
            CannotRead: the topic does not exist.
            KafkaError: the brokers failed.
        """
        async with dead_reader(self._worker.client_options(), self._worker.topic(kind)) as reader:
            found = await reader.at([position])
        return GoneMessage.of(found[0], body_bytes) if found else None

    async def preview(self, kind: Kind, wanted: Wanted, admin: Admin) -> Preview:
        """Plan to send some messages to the queues they were in. Sends nothing.

        Raises:
            CannotRedrive: no route leads to a queue.
            KafkaError: the brokers failed.
        """
        sent, refused, already_sent, full = await self._plan(kind, wanted, admin)
        return Preview(
            sent=[(GoneMessage.of(each.dead), each.record.topic) for each in sent],
            refused=refused, already_sent=already_sent, full=full,
        )  # fmt: skip

    async def send(self, kind: Kind, wanted: Wanted, admin: Admin) -> int:
        """Send some messages to the queues they were in, each once; return how many.

        Raises:
            CannotRedrive: no route leads to a queue.
            RedriveStopped: the brokers failed.
        """
        async with _sending:
            messages, *_ = await self._plan(kind, wanted, admin)
            used = await self._in_use()
            return await send_messages(RedriveContext.of(self._worker, used.queues), messages)

    async def _plan(
        self, kind: Kind, wanted: Wanted, admin: Admin
    ) -> tuple[list[RedriveMessage], list[tuple[str, str]], int, dict[str, int]]:
        plan = await self._find(kind, wanted)
        refused = list(plan.refused)
        sent: list[RedriveMessage] = []
        room: dict[str, int | None] = {}
        most: dict[str, int] = {}
        for each in plan.messages:
            queue = each.dead.queue
            if queue not in room:
                room[queue], most[queue] = await _limits(admin, queue)
            times = each.dead.redrives
            if 0 <= most[queue] <= times:
                text = f"it was redriven {times} times; max_redrives of {queue} is {most[queue]}"
                refused.append((each.dead.id, text))
            else:
                sent.append(each)
        coming = [each.dead.queue for each in sent]
        full = {
            queue: evicted
            for queue, left in room.items()
            if left is not None and (evicted := coming.count(queue) - left) > 0
        }
        return sent, refused, plan.already_sent, full

    async def _find(self, kind: Kind, wanted: Wanted) -> RedrivePlan:
        request = RedriveRequest(role=Role(kind))
        async with dead_reader(self._worker.client_options(), self._worker.topic(kind)) as reader:
            # The number in the files may be that of another application: see `Target`.
            worker = self._worker.model_copy(update={"partitions": reader.partitions})
            used = await self._in_use()
            context = RedriveContext.of(worker, used.queues, used.revisions)
            if not isinstance(wanted, AllBefore):
                found = [each for each in await reader.at(wanted) if each.queue]
                return await plan_for(context, request, found)
            plan, before = RedrivePlan(), wanted.before
            seen: set[tuple[str, str]] = set()
            while len(plan.messages) < MOST_REDRIVEN:
                found = await reader.latest(wanted.filter, MOST_REDRIVEN, before)
                last = {(each.queue, each.id): each for each in found if each.queue}
                new = [each for key, each in last.items() if key not in seen]
                seen.update(last)
                more = await plan_for(context, request, new)
                plan = RedrivePlan(
                    messages=[*more.messages, *plan.messages],
                    refused=[*more.refused, *plan.refused],
                    already_sent=more.already_sent + plan.already_sent,
                )
                if len(found) < MOST_REDRIVEN:
                    break
                before = Cursor.of(found[0])
            return replace(plan, messages=plan.messages[-MOST_REDRIVEN:])


async def _limits(admin: Admin, queue: str) -> tuple[int | None, int]:
    """How many messages its ring has room for (None: no limit), and its `max_redrives`."""
    try:
        details = await admin.queue(queue)
    except Refused:  # it does not exist now; its first message creates it
        return None, -1
    size = details.settings["ring_size"]
    room = max(size - details.counts["ready"], 0) if size > 0 else None
    return room, details.settings["max_redrives"]
