"""Find dead or evicted messages in their topic and send them again (R43).

A message is sent to a producers' topic whose route leads to the queue. `protocol.redrive` says what
the new record looks like.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core.catalog import Catalog, Configuration
from ringfaust.errors import RingfaustError, suggestion
from ringfaust.kafka.admin import Brokers
from ringfaust.kafka.names import topic_name
from ringfaust.kafka.reader import read_whole
from ringfaust.protocol import headers as h
from ringfaust.protocol.dead import DeadFilter, DeadMatcher, DeadMessage
from ringfaust.protocol.records import InRecord, OutgoingRecord, Role
from ringfaust.protocol.redrive import missing_payload, queue_header_for, redriven_headers
from ringfaust.protocol.routes import Route
from ringfaust.redrive.lake_jobs import EarlierLakeJob, earlier_jobs, refuse_maybe_sent
from ringfaust.redrive.memory import Origin, RedrivenPage


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
    earlier: Sequence[Catalog]
    """What was declared before."""
    max_record_bytes: int

    @classmethod
    def of(
        cls, worker: WorkerConfig, queues: QueuesConfig, earlier: Iterable[Configuration] = ()
    ) -> RedriveContext:
        """Read the configuration; `earlier`: what else has been in effect.

        Raises:
            ConfigError: a certificate or the password cannot be read.
        """
        direct, _ = queues.split_routes(worker.partitions)
        return cls(
            brokers=worker.brokers(),
            routes=[Route(route.topic, route.queue) for route in queues.routes],
            direct_topics=frozenset(route.topic for route in direct),
            partitions=worker.partitions,
            catalog=queues.catalog(),
            earlier=[each.catalog() for each in earlier],
            max_record_bytes=worker.max_record_bytes,
        )

    def missing_payload(self, queue: str) -> str:
        """The `evicted_payload` for which evicted records of the queue may lack theirs, if any."""
        return missing_payload((self.catalog, *self.earlier), queue)


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
    record: OutgoingRecord

    @property
    def origin(self) -> Origin:
        """Where its dead or evicted record is."""
        record = self.dead.record
        return Origin(record.topic, record.partition, record.offset)


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
        UnknownRedriven: a later version has written which messages were sent before.
        MaybeSent: an earlier version may have sent some of them.
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
        UnknownRedriven: a later version has written which messages were sent before.
        MaybeSent: an earlier version may have sent some of them.
    """
    plan = RedrivePlan()
    for dead in found:
        if reason := _lacks_payload(dead, context, request.role):
            plan.refused.append((dead.id, reason))
        else:
            plan.messages.append(_route(dead, context, request))
    if request.again:
        return plan
    topic = topic_name(context.brokers.application, request.role)
    pages = await read_pages(context, topic, {each.origin.page for each in plan.messages})
    left = [each for each in plan.messages if not pages[each.origin.page].has(each.origin)]
    refuse_maybe_sent(await read_jobs(context, topic), [each.origin for each in left])
    return replace(plan, messages=left, already_sent=len(plan.messages) - len(left))


async def read_pages(
    context: RedriveContext, topic: str, numbers: Iterable[int]
) -> dict[int, RedrivenPage]:
    """Read which records of these pages were sent again.

    Raises:
        UnknownRedriven: a later version wrote it.
        KafkaError: the brokers do not answer.
    """
    return {number: await read_page(context, topic, number) for number in numbers}


async def read_page(context: RedriveContext, topic: str, number: int) -> RedrivenPage:
    """Read which records of a page were sent again; as `read_pages`."""
    brokers = context.brokers
    page = RedrivenPage(brokers.application, topic, number)
    await page.read(brokers.client_options, range(context.partitions))
    return page


async def read_jobs(context: RedriveContext, topic: str) -> list[EarlierLakeJob]:
    """Read what earlier versions of `ringfaust spark redrive` have done; as `earlier_jobs`."""
    brokers = context.brokers
    partitions = range(context.partitions)
    return await earlier_jobs(brokers.client_options, brokers.application, topic, partitions)


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


def _lacks_payload(dead: DeadMessage, context: RedriveContext, role: Role) -> str:
    """Return why an evicted record is not the whole message; empty if it is."""
    if role is not Role.EVICTED or dead.record.value is not None:
        return ""
    form = context.missing_payload(dead.queue)
    return (
        f"evicted_payload is or was {form}: the message is at {dead.said(h.SOURCE)}" if form else ""
    )


# --- where to -------------------------------------------------------------------------------------


def _route(dead: DeadMessage, context: RedriveContext, request: RedriveRequest) -> RedriveMessage:
    """Send the message to its own topic if that leads to the queue, else to any topic that does.

    Raises:
        CannotRedrive: no topic does.
    """
    to = request.to or dead.queue
    own_topic = dead.said(h.SOURCE).rsplit("/", 2)[0]
    for route in sorted(context.routes, key=lambda route: route.topic != own_topic):
        queue_header = queue_header_for(route.topic, route.queue, dead.record, to)
        if queue_header is not None:
            record = OutgoingRecord(
                route.topic,
                dead.record.value,
                dead.record.key,
                redriven_headers(dead.record.headers, queue_header),
                _partition(route, dead, context, request),
            )
            return RedriveMessage(dead, record)
    text = f"no route leads message {dead.id!r} to queue {to!r}"
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
