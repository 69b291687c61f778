"""Dead and evicted messages are sent again (R43), by plain Kafka clients.

A message goes back by a producers' topic whose route leads to the queue. It is the producer's
record as it was, with the old id, priority, group and properties, no times, and a count of how
often it was sent again: a queue refuses what went round more often than its `max_redrives`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aiokafka import AIOKafkaProducer

from ringfaust.config import QueuesConfig, Route, WorkerConfig
from ringfaust.config.documents import suggestion
from ringfaust.core.address import address_of
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Message
from ringfaust.core.selector import Selector, compile_selector
from ringfaust.errors import ProtocolError, RingfaustError
from ringfaust.kafka.names import redrive_transactional_id
from ringfaust.kafka.reader import read_whole
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Headers, InRecord, Payload, Role
from ringfaust.protocol.routes import queue_namer

_MARK = "\0"
"""Stands for what a template takes from the header that names the queue."""


class CannotRedrive(RingfaustError):
    """What was asked for cannot be done; nothing was sent.

    Attributes:
        option: of the command line, which it is about.
    """

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"{option}: {text}")
        self.option = option


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """Which messages, and where to. What is empty or 0 excludes nothing."""

    role: Role
    """DEAD or EVICTED."""
    to: str
    """The queue."""
    ids: Sequence[str] = ()
    reason: str = ""
    since_ms: int = 0
    """Those that were given up or evicted at that time or later, ms since 1970."""
    selector: str = ""
    queue: str = ""
    """The queue that it was in, or a pattern; of an address' queues the address'."""
    partition: int | None = None
    """Where `to` lives; None: to be found out."""


class DeadMessage(NamedTuple):
    """A message as its dead or evicted record tells of it."""

    id: str
    queue: str
    sequence: int
    reason: str
    time_ms: int
    """When it was given up or evicted."""
    record: InRecord


class RedriveMessage(NamedTuple):
    """A message that is to be sent again."""

    gone: DeadMessage
    topic: str
    partition: int | None
    """None: the record's key decides."""
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """What can be sent again, in the order it was given up or evicted, and what cannot."""

    messages: list[RedriveMessage] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Id and reason; R103: `bad_command`."""


async def find(worker: WorkerConfig, queues: QueuesConfig, asked: RedriveRequest) -> RedrivePlan:
    """Look for the messages in their topic, up to its end now. Sends nothing.

    Raises:
        CannotRedrive: no route leads to the queue.
        BadSelector: the selector is none.
        CannotRead: the topic is not there.
    """
    picker = _Picker(asked)
    client = worker.client_options()
    await read_whole(client, [worker.topic(asked.role)], picker.take, from_first=False)
    ways = _Ways(worker, queues, asked)
    found = RedrivePlan()
    for gone in picker.picked():
        if why := _lacks_payload(gone, queues, asked.role):
            found.refused.append((gone.id, why))
        else:
            found.messages.append(ways.again(gone))
    known = {gone.id for gone in picker.picked()}
    text = f"no record of the {asked.role} topic has that id"
    if asked.reason or asked.since_ms or asked.selector or asked.queue:
        text += " and is as asked for"
    found.refused.extend((each, text) for each in asked.ids if each not in known)
    return found


async def send(worker: WorkerConfig, messages: Sequence[RedriveMessage]) -> None:
    """Send them again, all or none.

    Raises:
        KafkaError: the brokers did not take them.
    """
    producer = AIOKafkaProducer(
        **worker.client_options(),
        transactional_id=redrive_transactional_id(worker.application),
        acks="all",
        max_request_size=2 * worker.max_record_bytes,
    )
    await producer.start()
    try:
        async with producer.transaction():
            for each in messages:
                record = each.gone.record
                await producer.send(
                    each.topic,
                    record.value,
                    key=record.key,
                    partition=each.partition,
                    headers=list(each.headers),
                )
    finally:
        await producer.stop()


# --- which ----------------------------------------------------------------------------------------


class _Picker:
    """Of each id in each queue the last record; kept whole only if it is as asked for."""

    def __init__(self, asked: RedriveRequest) -> None:
        self._asked = asked
        self._ids = frozenset(asked.ids)
        self._selector: Selector | None = None
        if asked.selector:
            self._selector = compile_selector(asked.selector)
        self._last: dict[tuple[str, str], DeadMessage | None] = {}

    def take(self, records: Sequence[InRecord]) -> None:
        """Records of one partition."""
        for record in records:
            said = dict(record.headers)
            if h.SEQUENCE not in said:
                continue  # it could not be read, and is no message
            gone = DeadMessage(
                said[h.ID].decode(),
                said[h.QUEUE].decode(),
                int(said[h.SEQUENCE]),
                said[h.REASON].decode(),
                int(said[h.TIME_MS]),
                record,
            )
            if not self._ids or gone.id in self._ids:
                key = (gone.queue, gone.id)
                self._last.pop(key, None)
                self._last[key] = gone if self._fits(gone, said) else None

    def _fits(self, gone: DeadMessage, said: dict[str, bytes]) -> bool:
        asked = self._asked
        if gone.time_ms < asked.since_ms or (asked.queue and not _is_of(gone.queue, asked.queue)):
            return False
        if asked.reason and gone.reason != asked.reason:
            return False
        return self._selector is None or self._selector.matches(_message(gone, said))

    def picked(self) -> list[DeadMessage]:
        """In the order they were given up; of an id that was named, the last of all queues."""
        picked = sorted(filter(None, self._last.values()), key=lambda gone: gone.time_ms)
        return list({gone.id: gone for gone in picked}.values()) if self._ids else picked


def _is_of(queue: str, pattern: str) -> bool:
    return queue == pattern or Catalog({pattern: {}}, {}).declares(address_of(queue) or queue)


def _message(gone: DeadMessage, said: dict[str, bytes]) -> Message:
    """What a selector is asked about."""
    record = gone.record
    headers = tuple(_own(record))
    payload = Payload(record.key, record.value, headers, said[h.SOURCE].decode())
    return Message(
        gone.id, gone.sequence, 0, int(said[h.PRIORITY]), int(said[h.ENQUEUED_MS]), 0, 0,
        said.get(h.GROUP, b"").decode(), int(said.get(h.ATTEMPT, b"0")), int(said[h.HANDOVERS]),
        (), 0, payload,
    )  # fmt: skip


def _own(record: InRecord) -> Iterator[tuple[str, bytes]]:
    """The producer's headers, and of ours those that are the message's own."""
    for name, value in record.headers:
        if not name.startswith(h.PREFIX) or name in h.KEPT:
            yield name, value


def _lacks_payload(gone: DeadMessage, queues: QueuesConfig, role: Role) -> str:
    """Why an evicted record is not the whole message; empty: it is."""
    if role is not Role.EVICTED or gone.record.value is not None:
        return ""
    form = queues.catalog().spec(gone.queue, {}).evicted_payload
    source = dict(gone.record.headers)[h.SOURCE].decode()
    return "" if form == "full" else f"evicted_payload is {form}: the message is at {source}"


# --- where to -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Record:
    """A record as a route would read it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    timestamp_type: int = 0


class _Ways:
    """The routes that lead to a queue."""

    def __init__(self, worker: WorkerConfig, queues: QueuesConfig, asked: RedriveRequest) -> None:
        self._partitions = worker.partitions
        self._routes = queues.routes
        self._asked = asked

    def again(self, gone: DeadMessage) -> RedriveMessage:
        """The message on its way: by its own topic, if that leads there, else by any that does.

        Raises:
            CannotRedrive: none does.
        """
        said = dict(gone.record.headers)
        own_topic = said[h.SOURCE].decode().rsplit("/", 2)[0]
        for route in sorted(self._routes, key=lambda route: route.topic != own_topic):
            name = self._named_by(route, gone.record)
            if name is not None:
                partition = self._partition(route, gone)
                return RedriveMessage(gone, route.topic, partition, _headers(gone, said, name))
        text = f"no route of queues.yaml leads message {gone.id!r} to queue {self._asked.to!r}"
        known = suggestion(self._asked.to, [route.queue for route in self._routes])
        raise CannotRedrive("--to", f"{text}: {known}")

    def _named_by(self, route: Route, record: InRecord) -> str | None:
        """What the header that names the queue must say; empty: it is not asked for. None: no way.

        It is one of ours, and not passed on. But all else that the name is made of is known.
        """
        headers = [*_own(record), (h.QUEUE, _MARK.encode())]
        told = _Record(topic=route.topic, key=record.key, value=record.value, headers=headers)
        try:
            name = queue_namer(route.queue)(told)
        except ProtocolError:
            return None
        to = self._asked.to
        before, mark, after = name.partition(_MARK)
        if not mark:
            return "" if name == to else None
        fits = to.startswith(before) and to.endswith(after) and len(to) > len(before) + len(after)
        return to[len(before) : len(to) - len(after)] if fits and _MARK not in after else None

    def _partition(self, route: Route, gone: DeadMessage) -> int | None:
        """Where the queue lives, if the route takes its records there directly."""
        asked = self._asked
        if route.needs_hop(self._partitions):
            return None
        if asked.partition is not None:
            return asked.partition
        if gone.queue == asked.to:
            return gone.record.partition
        if self._partitions == 1:
            return 0
        raise CannotRedrive(
            "--to",
            f"topic {route.topic} is read without a hop, so the partition of queue {asked.to!r} is "
            "not known: give it by --partition",
        )


def _headers(gone: DeadMessage, said: dict[str, bytes], name: str) -> Headers:
    """R43: priority, group and properties are the old ones, the times are not."""
    headers = [pair for pair in _own(gone.record) if pair[0] != h.REDRIVES]
    headers += [(h.ID, gone.id.encode()), (h.PRIORITY, said[h.PRIORITY])]
    if h.GROUP in said:
        headers.append((h.GROUP, said[h.GROUP]))
    if name:
        headers.append((h.QUEUE, name.encode()))
    headers.append((h.REDRIVES, b"%d" % (int(said.get(h.REDRIVES, b"0")) + 1)))
    return headers
