"""Read the dead and evicted topics: the latest messages, their numbers, and new ones as they come.

A message is called dead here whichever of the two topics it is in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.kafka.reader import read_to_end, require_topics
from ringfaust.protocol.dead import DeadFilter, DeadMatcher, DeadMessage
from ringfaust.protocol.records import InRecord
from ringfaust.transactional.vendor import stop_client

_FIRST_SPAN = 500
_MOST_SPAN = 20_000
"""How many offsets of a partition are read at once, going backwards."""
_CLOCK_SKEW_MS = 300_000
"""How far the clocks of workers may differ: a record's time is its producer's."""
_POLL_MS = 500


class Cursor(NamedTuple):
    """Where a message is among those of all partitions, in the order in which they died."""

    time_ms: int
    offset: int
    partition: int

    @classmethod
    def of(cls, dead: DeadMessage) -> Cursor:
        """The place of a message. Those of one batch have the same time: offsets order them."""
        return cls(dead.time_ms, dead.record.offset, dead.record.partition)


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
    """Reads the dead or evicted topic; see `dead_reader`.

    Everything raises `KafkaError` if the brokers fail.
    """

    def __init__(self, consumer: AIOKafkaConsumer, places: Sequence[TopicPartition]) -> None:
        self._consumer = consumer
        self._places = places
        self._ends: dict[TopicPartition, int] = {}

    @property
    def partitions(self) -> int:
        """How many the topic has."""
        return len(self._places)

    async def latest(
        self, wanted: DeadFilter, limit: int, before: Cursor | None = None
    ) -> list[DeadMessage]:
        """Return the last `limit` messages that match, the oldest of them first.

        It reads backwards, so the whole topic only if too few match. With `before`, those after
        that place, and the one that is there, do not count.

        Raises:
            BadSelector: the selector is not valid.
        """
        matcher = DeadMatcher(wanted)
        begins = await self._starts(wanted.since_ms)
        ends = self._ends
        if before is not None:
            ends = await self._offsets_at(before.time_ms + _CLOCK_SKEW_MS)
        uppers = {place: end for place, end in ends.items() if end > begins[place]}
        span = max(_FIRST_SPAN, 2 * limit)
        found: list[DeadMessage] = []
        while uppers:
            lowers = {each: max(begins[each], upper - span) for each, upper in uppers.items()}
            oldest: dict[TopicPartition, int] = {}
            async for records in self._range(lowers, uppers):
                place = TopicPartition(records[0].topic, records[0].partition)
                oldest.setdefault(place, records[0].timestamp)
                found += (
                    each
                    for each in filter(matcher.matches, DeadMessage.read_all(records))
                    if before is None or Cursor.of(each) < before
                )
                found = sorted(found, key=Cursor.of)[-limit:]
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
        """
        matcher = DeadMatcher(wanted)
        begins = await self._starts(wanted.since_ms)
        found: Counter[tuple[str, str]] = Counter()
        async for records in self._range(begins, self._ends):
            dead = filter(matcher.matches, DeadMessage.read_all(records))
            found.update((each.queue, each.reason) for each in dead)
        return found

    async def follow(self, wanted: DeadFilter) -> AsyncIterator[DeadMessage]:
        """Yield the messages that match and come after those of `latest`, without end."""
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
        return await self._offsets_at(from_ms)

    async def _offsets_at(self, time_ms: int) -> dict[TopicPartition, int]:
        """The first offsets of that time or later; `_starts` must have run before."""
        found = await self._consumer.offsets_for_times(dict.fromkeys(self._places, time_ms))
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
