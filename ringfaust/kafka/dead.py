"""Read the dead and evicted topics: the latest messages, their numbers, and new ones as they come.

A message is called dead here whichever of the two topics it is in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.core.address import address_of
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Message
from ringfaust.core.selector import compile_selector
from ringfaust.kafka.reader import read_to_end, require_topics
from ringfaust.kafka.vendor import stop_client
from ringfaust.protocol import headers as h
from ringfaust.protocol.cloud_events import is_undecodable
from ringfaust.protocol.records import InRecord, Payload
from ringfaust.protocol.redrive import message_headers

_FIRST_SPAN = 500
_MOST_SPAN = 20_000
"""How many offsets of a partition are read at once, going backwards."""
_CLOCK_SKEW_MS = 300_000
"""How far the clocks of workers may differ: a record's time is its producer's."""
_POLL_MS = 500


class DeadMessage(NamedTuple):
    """A message as its dead or evicted record describes it."""

    id: str
    queue: str
    """Empty: the record was undecodable, so it never became a message. Its id is its source."""
    sequence: int
    reason: str
    time_ms: int
    """When it died or was evicted, ms since 1970."""
    record: InRecord

    @classmethod
    def read(cls, record: InRecord) -> DeadMessage:
        """Read a record of the dead or evicted topic."""
        headers = dict(record.headers)
        is_message = not is_undecodable(record.headers)
        return cls(
            headers.get(h.ID, headers[h.SOURCE]).decode(),
            headers[h.QUEUE].decode() if is_message else "",
            int(headers[h.SEQUENCE]) if is_message else 0,
            headers[h.REASON].decode(),
            int(headers[h.TIME_MS]),
            record,
        )

    @classmethod
    def read_all(cls, records: Iterable[InRecord]) -> Iterator[DeadMessage]:
        """Read records of the dead or evicted topic, without those that no worker has written."""
        for record in records:
            with suppress(LookupError, ValueError, TypeError, AttributeError):
                yield cls.read(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Which dead or evicted messages are meant. A filter that is empty or 0 is off."""

    ids: Sequence[str] = ()
    reason: str = ""
    since_ms: int = 0
    """Messages that died or were evicted at or after this time, ms since 1970."""
    selector: str = ""
    queue: str = ""
    """The queue they were in, or a pattern. The name of an address matches all of its queues."""


class DeadMatcher:
    """Tells whether a filter lets a message pass.

    Raises:
        BadSelector: the selector is not valid.
    """

    def __init__(self, wanted: DeadFilter) -> None:
        self._wanted = wanted
        self._ids = frozenset(wanted.ids)
        self._selector = compile_selector(wanted.selector) if wanted.selector else None

    def is_named(self, dead: DeadMessage) -> bool:
        """Whether its id is among the wanted ones, or none are named."""
        return not self._ids or dead.id in self._ids

    def matches(self, dead: DeadMessage) -> bool:
        """Whether it passes every filter."""
        wanted = self._wanted
        if not self.is_named(dead) or dead.time_ms < wanted.since_ms:
            return False
        if wanted.queue and not _is_in(dead.queue, wanted.queue):
            return False
        if wanted.reason and dead.reason != wanted.reason:
            return False
        if self._selector is None:
            return True
        return bool(dead.queue) and self._selector.matches(_message(dead))


def _is_in(queue: str, pattern: str) -> bool:
    return queue == pattern or Catalog({pattern: {}}, {}).declares(address_of(queue) or queue)


def _message(dead: DeadMessage) -> Message:
    """Rebuild the message that the selector tests."""
    record = dead.record
    headers = dict(record.headers)
    own_headers = tuple(message_headers(record.headers))
    payload = Payload(record.key, record.value, own_headers, headers[h.SOURCE].decode())
    return Message(
        dead.id, dead.sequence, 0, int(headers[h.PRIORITY]), int(headers[h.ENQUEUED_MS]), 0, 0,
        headers.get(h.GROUP, b"").decode(), int(headers.get(h.ATTEMPT, b"0")),
        int(headers[h.HANDOVERS]), (), 0, payload,
    )  # fmt: skip


# --- looking --------------------------------------------------------------------------------------


@asynccontextmanager
async def dead_reader(client: Mapping[str, Any], topic: str) -> AsyncIterator[DeadReader]:
    """Open a reader of the dead or evicted topic.

    Raises:
        CannotRead: the topic does not exist.
        KafkaError: the brokers cannot be reached or refuse the client.
    """
    consumer = AIOKafkaConsumer(
        topic,
        **client,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    try:
        await require_topics(client, [topic])
        await consumer.start()
        yield DeadReader(consumer, sorted(consumer.assignment()))
    finally:
        await stop_client(consumer)


class DeadReader:
    """Reads the dead or evicted topic; see `dead_reader`."""

    def __init__(self, consumer: AIOKafkaConsumer, places: Sequence[TopicPartition]) -> None:
        self._consumer = consumer
        self._places = places
        self._ends: dict[TopicPartition, int] = {}

    async def latest(self, wanted: DeadFilter, limit: int) -> list[DeadMessage]:
        """Return the last `limit` messages that match, the oldest of them first.

        It reads backwards, so the whole topic only if too few match.

        Raises:
            BadSelector: the selector is not valid.
            KafkaError: the brokers failed.
        """
        matcher = DeadMatcher(wanted)
        begins = await self._starts(wanted.since_ms)
        uppers = {place: end for place, end in self._ends.items() if end > begins[place]}
        span = max(_FIRST_SPAN, 2 * limit)
        found: list[DeadMessage] = []
        while uppers:
            lowers = {each: max(begins[each], upper - span) for each, upper in uppers.items()}
            oldest: dict[TopicPartition, int] = {}
            async for records in self._range(lowers, uppers):
                place = TopicPartition(records[0].topic, records[0].partition)
                oldest.setdefault(place, records[0].timestamp)
                found += filter(matcher.matches, DeadMessage.read_all(records))
                found = _last(found, limit)
            since_ms = found[0].time_ms if len(found) == limit else 0
            uppers = {
                place: lower
                for place, lower in lowers.items()
                if lower > begins[place] and oldest.get(place, since_ms) >= since_ms
            }
            span = min(4 * span, _MOST_SPAN)
        return found

    async def at(self, positions: Iterable[tuple[int, int]]) -> list[DeadMessage]:
        """Return the messages whose records have these partitions and offsets.

        Records that are gone are left out.

        Raises:
            KafkaError: the brokers failed.
        """
        await self._starts(0)
        left: dict[TopicPartition, list[int]] = {place: [] for place in self._places}
        by_number = {place.partition: place for place in self._places}
        for partition, offset in positions:
            place = by_number.get(partition)
            if place is not None and offset < self._ends[place]:
                left[place].append(offset)
        found: list[DeadMessage] = []
        while any(left.values()):
            lowers = {place: offsets.pop() for place, offsets in left.items() if offsets}
            uppers = {place: offset + 1 for place, offset in lowers.items()}
            async for records in self._range(lowers, uppers):
                found += DeadMessage.read_all(records)
        return sorted(found, key=lambda each: each.time_ms)

    async def counts(self, wanted: DeadFilter) -> Counter[tuple[str, str]]:
        """Return how many messages match, by queue and reason.

        Raises:
            BadSelector: the selector is not valid.
            KafkaError: the brokers failed.
        """
        matcher = DeadMatcher(wanted)
        begins = await self._starts(wanted.since_ms)
        found: Counter[tuple[str, str]] = Counter()
        async for records in self._range(begins, self._ends):
            dead = filter(matcher.matches, DeadMessage.read_all(records))
            found.update((each.queue, each.reason) for each in dead)
        return found

    async def follow(self, wanted: DeadFilter) -> AsyncIterator[DeadMessage]:
        """Yield the messages that match and come after those of `latest`, without end.

        Raises:
            KafkaError: the brokers failed.
        """
        matcher = DeadMatcher(wanted)
        self._seek(self._ends)
        while True:
            fetched = await self._consumer.getmany(timeout_ms=_POLL_MS)
            for records in fetched.values():
                for dead in filter(matcher.matches, DeadMessage.read_all(records)):
                    yield dead

    async def _starts(self, since_ms: int) -> dict[TopicPartition, int]:
        """The first offsets that may be of that time; notes the ends."""
        consumer = self._consumer
        begins = dict(await consumer.beginning_offsets(self._places))
        self._ends = dict(await consumer.end_offsets(self._places))
        from_ms = since_ms - _CLOCK_SKEW_MS
        if from_ms <= 0:
            return begins
        found = await consumer.offsets_for_times(dict.fromkeys(self._places, from_ms))
        return {
            place: at.offset if (at := found[place]) else self._ends[place]
            for place in self._places
        }

    async def _range(
        self, lowers: Mapping[TopicPartition, int], uppers: Mapping[TopicPartition, int]
    ) -> AsyncIterator[list[InRecord]]:
        """Yield the records between the offsets, each time of one partition, in order."""
        left = {each: uppers[each] for each, lower in lowers.items() if lower < uppers[each]}
        self._consumer.pause(*self._places)
        self._seek({each: lowers[each] for each in left})
        async for records in read_to_end(self._consumer, left):
            place = TopicPartition(records[0].topic, records[0].partition)
            if within := [each for each in records if each.offset < left[place]]:
                yield within

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for place, offset in offsets.items():
            self._consumer.seek(place, offset)
        self._consumer.resume(*offsets)


def _last(messages: Iterable[DeadMessage], limit: int) -> list[DeadMessage]:
    # Those of one batch have the same time: within a partition their offsets order them.
    return sorted(messages, key=lambda each: (each.time_ms, each.record.offset))[-limit:]
