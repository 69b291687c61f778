"""Find dead or evicted messages in their topic and send them again (R43).

A message is sent to a producers' topic whose route leads to the queue. `protocol.redrive` says what
the new record looks like.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ringfaust.core.catalog import Catalog
from ringfaust.errors import RingfaustError, suggestion
from ringfaust.kafka.admin import Brokers
from ringfaust.kafka.dead import DeadFilter, DeadMatcher, DeadMessage
from ringfaust.kafka.names import topic_name
from ringfaust.kafka.reader import read_whole
from ringfaust.kafka.redriven import PAGE_RECORDS, RedrivenPage
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Headers, InRecord, Role
from ringfaust.protocol.redrive import (
    missing_payload,
    queue_header_for,
    redriven_headers,
)
from ringfaust.protocol.routes import Route


class CannotRedrive(RingfaustError):
    """The redrive is impossible as requested; nothing was sent.

    Attributes:
        option: the command-line option to change.
    """

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"{option}: {text}")
        self.option = option


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveContext:
    """The application whose messages are redriven."""

    brokers: Brokers
    routes: Sequence[Route]
    """All routes, in the order of `queues.yaml`."""
    direct_topics: frozenset[str]
    """Topics of those routes that workers read without repartitioning."""
    partitions: int
    catalog: Catalog
    max_record_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest(DeadFilter):
    """Which messages to redrive, and to which queue."""

    role: Role
    """DEAD or EVICTED."""
    to: str = ""
    """The queue to send them to. Empty: each to the queue it was in."""
    partition: int | None = None
    """The partition of `to`. None: determine it from the route."""
    again: bool = False
    """Also send messages that a redrive has sent before."""


class RedriveMessage(NamedTuple):
    """A message to send again."""

    dead: DeadMessage
    topic: str
    partition: int | None
    """None: the producer chooses it by the record's key."""
    headers: Headers

    @property
    def position(self) -> tuple[int, int]:
        """Partition and offset of the dead or evicted record."""
        return self.dead.record.partition, self.dead.record.offset

    @property
    def size_bytes(self) -> int:
        """Size of the record."""
        record = self.dead.record
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(record.key or b"") + len(record.value or b"") + headers


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """What can be redriven, in the order it died or was evicted, and what cannot."""

    messages: list[RedriveMessage] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Message ids with the reason for each; R103: `bad_command`."""
    already_sent: int = 0
    """Number of matching messages that were sent before, and are left out."""


async def find(context: RedriveContext, request: RedriveRequest) -> RedrivePlan:
    """Read the dead or evicted topic to its end and plan the redrive. Sends nothing.

    Raises:
        CannotRedrive: no route leads to the queue.
        BadSelector: the selector is not valid.
        CannotRead: the topic does not exist.
        UnknownRedriven: it is not known which messages were sent before.
    """
    matcher = _Matcher(request)
    topic = topic_name(context.brokers.application, request.role)
    await read_whole(context.brokers.client_options, [topic], matcher.take, from_first=False)
    matched = matcher.matched()
    plan = await plan_for(context, request, matched)
    known = {dead.id for dead in matched}
    reason = f"no record of the {request.role} topic has that id"
    if request.reason or request.since_ms or request.selector or request.queue:
        reason += " and matches the other options"
    plan.refused.extend((each, reason) for each in request.ids if each not in known)
    return plan


async def plan_for(
    context: RedriveContext, request: RedriveRequest, found: Iterable[DeadMessage]
) -> RedrivePlan:
    """Plan the redrive of messages that were found. Sends nothing.

    Args:
        context: the application.
        request: where to send them; its filters do not matter.
        found: the messages.

    Raises:
        CannotRedrive: no route leads to the queue.
        UnknownRedriven: it is not known which messages were sent before.
    """
    plan = RedrivePlan()
    for dead in found:
        if reason := _lacks_payload(dead, context.catalog, request.role):
            plan.refused.append((dead.id, reason))
        else:
            plan.messages.append(_route(dead, context, request))
    if request.again:
        return plan
    left = [
        message
        for page, messages in await read_pages(context, plan.messages)
        for message in messages
        if not page.has(*message.position)
    ]
    left.sort(key=lambda message: message.dead.time_ms)
    return replace(plan, messages=left, already_sent=len(plan.messages) - len(left))


async def read_pages(
    context: RedriveContext, messages: Iterable[RedriveMessage]
) -> list[tuple[RedrivenPage, list[RedriveMessage]]]:
    """Read which records of the messages' pages were sent again. Pages are in order.

    Raises:
        UnknownRedriven: a later version wrote it.
        KafkaError: the brokers do not answer.
    """
    by_page: dict[tuple[str, int], list[RedriveMessage]] = {}
    for each in messages:
        page = each.dead.record.offset // PAGE_RECORDS
        by_page.setdefault((each.dead.record.topic, page), []).append(each)
    found = []
    for (topic, number), within in sorted(by_page.items()):
        page_of = RedrivenPage(context.brokers.application, topic, number)
        partitions = {each.dead.record.partition for each in within}
        await page_of.read(context.brokers.client_options, partitions)
        found.append((page_of, within))
    return found


# --- which messages -------------------------------------------------------------------------------


class _Matcher:
    """Keeps the last record of each id in each queue, and its content only if it matches."""

    def __init__(self, request: RedriveRequest) -> None:
        self._matcher = DeadMatcher(request)
        self._is_named = bool(request.ids)
        self._last: dict[tuple[str, str], DeadMessage | None] = {}

    def take(self, records: Sequence[InRecord]) -> None:
        """Match records of one partition."""
        for dead in DeadMessage.read_all(records):
            if dead.queue and self._matcher.is_named(dead):
                key = (dead.queue, dead.id)
                self._last.pop(key, None)
                self._last[key] = dead if self._matcher.matches(dead) else None

    def matched(self) -> list[DeadMessage]:
        """Return the matches in the order they died. An id that was named occurs once: the last."""
        matched = sorted(filter(None, self._last.values()), key=lambda dead: dead.time_ms)
        return list({dead.id: dead for dead in matched}.values()) if self._is_named else matched


def _lacks_payload(dead: DeadMessage, catalog: Catalog, role: Role) -> str:
    """Return why an evicted record is not the whole message; empty if it is."""
    if role is not Role.EVICTED or dead.record.value is not None:
        return ""
    form = missing_payload(catalog, dead.queue)
    source = dict(dead.record.headers)[h.SOURCE].decode()
    return f"evicted_payload is {form}: the message is at {source}" if form else ""


# --- where to -------------------------------------------------------------------------------------


def _route(dead: DeadMessage, context: RedriveContext, request: RedriveRequest) -> RedriveMessage:
    """Send the message to its own topic if that leads to the queue, else to any topic that does.

    Raises:
        CannotRedrive: no topic does.
    """
    headers = dict(dead.record.headers)
    to = request.to or dead.queue
    own_topic = headers[h.SOURCE].decode().rsplit("/", 2)[0]
    for route in sorted(context.routes, key=lambda route: route.topic != own_topic):
        queue_header = queue_header_for(route.topic, route.queue, dead.record, to)
        if queue_header is not None:
            partition = _partition(route, dead, context, request)
            return RedriveMessage(
                dead, route.topic, partition, redriven_headers(dead.record.headers, queue_header)
            )
    text = f"no route of queues.yaml leads message {dead.id!r} to queue {to!r}"
    known = suggestion(to, [route.queue for route in context.routes])
    raise CannotRedrive("--to", f"{text}: {known}")


def _partition(
    route: Route, dead: DeadMessage, context: RedriveContext, request: RedriveRequest
) -> int | None:
    """Return the queue's partition if the route's topic is read directly, else None."""
    if route.topic not in context.direct_topics:
        return None
    if request.partition is not None:
        return request.partition
    if not request.to or dead.queue == request.to:
        return dead.record.partition
    if context.partitions == 1:
        return 0
    raise CannotRedrive(
        "--to",
        f"topic {route.topic} is read without a hop, so the partition of queue {request.to!r} is "
        "not known: name it with --partition",
    )
