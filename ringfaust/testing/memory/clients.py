"""What the client uses of aiokafka's producer and consumer, on a `MemoryBroker`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from aiokafka import TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import RecordMetadata

from ringfaust.protocol.records import FetchedRecord, Headers, OutgoingRecord
from ringfaust.testing.memory.topics import MemoryTopics
from ringfaust.transactional.writer import size_bytes

if TYPE_CHECKING:
    from ringfaust.testing.memory.broker import MemoryBroker


_REQUEST_BYTES = 1 << 20
"""As the default of aiokafka's `max_request_size`."""


class _Metadata(NamedTuple):
    partitions: Mapping[str, int]

    def topics(self) -> set[str]:
        return set(self.partitions)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self.partitions.get(topic, 0)))


class MemoryClient:
    """What writes. While it is open, the consumers of its program send heartbeats."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was started and not stopped, and its program still runs."""
        return self._loop is not None and not self._loop.is_closed()

    async def start(self) -> None:
        """Open it."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Close it."""
        self._loop = None

    @property
    def client(self) -> Self:
        """What can be asked about topics."""
        return self

    async def fetch_all_metadata(self) -> _Metadata:
        """All topics."""
        return _Metadata(dict(self._broker.topics.partitions))

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic."""
        return set(range(self._broker.topics.partitions[topic]))

    async def write(self, records: Sequence[OutgoingRecord]) -> list[RecordMetadata]:
        """Store records, all at once.

        Raises:
            MessageSizeTooLargeError: one is larger than a producer accepts by default.
            UnknownTopicOrPartitionError: there is no such topic.
        """
        for record in records:
            if (size := size_bytes(record)) > _REQUEST_BYTES:
                raise MessageSizeTooLargeError(
                    f"the record has {size} bytes: more than max_request_size, {_REQUEST_BYTES}"
                )
            count = self._broker.topics.partitions.get(record.topic, 0)
            if not 0 <= (record.partition or 0) < count:
                raise UnknownTopicOrPartitionError(record.topic)
        written = self._broker.write(records, self)
        await asyncio.sleep(0)  # who reads has its turn, as with real brokers
        return [
            RecordMetadata(
                each.topic, each.partition, TopicPartition(each.topic, each.partition),
                each.offset, each.timestamp, each.timestamp_type, 0,
            )
            for each in written
        ]  # fmt: skip


class MemoryProducer(MemoryClient):
    """A producer."""

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Store a record, before the future is returned."""
        stored: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        record = OutgoingRecord(topic, value, key, headers, partition)
        stored.set_result((await self.write([record]))[0])
        return stored


class MemoryWriter(MemoryClient):
    """A `Writer`: what it sends is stored at its commit."""

    may_be_committed = False

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self._sent: list[OutgoingRecord] = []

    async def send(self, records: Iterable[OutgoingRecord]) -> list[asyncio.Future[RecordMetadata]]:
        """Keep records for the commit."""
        self._sent += records
        return []

    async def commit(
        self, produce: Callable[[], Awaitable[Sequence[asyncio.Future[RecordMetadata]]]]
    ) -> list[RecordMetadata]:
        """Store what `produce` sends."""
        await produce()
        sent, self._sent = self._sent, []
        return await self.write(sent)

    async def abort(self) -> None:
        """Drop what was sent."""
        self._sent.clear()


class MemoryConsumer:
    """A consumer without a group."""

    def __init__(self, topics: MemoryTopics) -> None:
        self._topics = topics
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Open it."""
        self._loop = asyncio.get_running_loop()
        self._topics.watch(self._wake)

    async def stop(self) -> None:
        """Close it. Calls that wait raise `ConsumerStoppedError`."""
        self._topics.unwatch(self._wake)
        self._loop = None
        self._arrived.set()

    def _wake(self) -> None:
        """Let who waits look again; called from any thread."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # its program has ended without closing it
                loop.call_soon_threadsafe(self._arrived.set)

    # --- positions -------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """All topics."""
        return set(self._topics.partitions)

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Read these partitions, from their beginnings."""
        self._positions = dict.fromkeys(places, 0)
        self._paused.clear()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that it reads."""
        return set(self._positions)

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue at an offset."""
        self._positions[place] = offset

    async def position(self, place: TopicPartition) -> int:
        """The offset of the next record to read."""
        return self._positions[place]

    def pause(self, *places: TopicPartition) -> None:
        """Do not read these partitions."""
        self._paused.update(places)

    def resume(self, *places: TopicPartition) -> None:
        """Undo `pause`."""
        self._paused.difference_update(places)

    async def beginning_offsets(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offsets of the first records."""
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets behind the last records."""
        return {place: self._topics.end(place) for place in places}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Any]:
        """The first records since these times, with `offset`; None if there is none."""
        first = {place: self._topics.since(place, time_ms) for place, time_ms in times.items()}
        return {
            place: FetchedRecord(offset=offset) if offset < self._topics.end(place) else None
            for place, offset in first.items()
        }

    # --- records ---------------------------------------------------------------------------------

    async def getone(self) -> FetchedRecord:
        """Wait for the next record."""
        while True:
            found = self._fetch(1)
            for (record,) in found.values():
                return record
            await self._arrived.wait()

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[FetchedRecord]]:
        """Return the next records, and wait so long if there are none."""
        if not (found := self._fetch(max_records)) and timeout_ms:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    while not found:
                        await self._arrived.wait()
                        found = self._fetch(max_records)
        return found

    def __aiter__(self) -> Self:
        """Iterate until it is stopped."""
        return self

    async def __anext__(self) -> FetchedRecord:
        """Wait for the next record."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def _fetch(self, most: int | None) -> dict[TopicPartition, list[FetchedRecord]]:
        if self._loop is None:
            raise ConsumerStoppedError
        self._arrived.clear()
        found: dict[TopicPartition, list[FetchedRecord]] = {}
        for place, position in self._positions.items():
            if place not in self._paused and most != 0:
                records = list(self._topics.read(place, position, most))
                if records:
                    found[place] = records
                    self._positions[place] += len(records)
                    most = None if most is None else most - len(records)
        return found
