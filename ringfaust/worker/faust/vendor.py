"""Every private API of Faust, mode and aiokafka that the worker uses, behind public names.

A private API may change in any release, so it appears here and nowhere else in `ringfaust.worker`
(`ringfaust.kafka.vendor` does the same for the producer). `tests/worker/faust/test_vendor.py` pins
each name below: its signature and the behaviour that we rely on. `pyproject.toml` admits patch
releases only.

Faust 0.15:

- `Consumer._new_consumer_thread`, `Consumer._drain_messages`: overridden, to fetch whole batches.
- `AIOKafkaConsumerThread.__post_init__`, `on_start`, `on_thread_stop`: extended.
- `AIOKafkaConsumerThread._create_worker_consumer`: overridden, to choose the client's options.
- `AIOKafkaConsumerThread._ensure_consumer`, `_assignor`: the Kafka client, and its assignor.
- `AIOKafkaConsumerThread.close`: overridden, because it closes the client from another thread.
- `Consumer.RebalanceListener`: extended, because Faust stops everything for each rebalance.
- mode's `ServiceThread._stopped_set`: overridden, because it fails in a thread that has ended.
- `TableManager._update_channels`: a table manager without tables.
- `App._new_transport`, `App._stop_consumer`, `App._consumer`: overridden, to use our transport and
  to stop in order.

aiokafka 0.14:

- `AIOKafkaConsumer._fetcher`, `Fetcher._prefetch_backoff`: how long records that nobody asks for
  keep the client from fetching others.
- `AIOKafkaConsumer._subscription`: the position, without waiting for one; and its
  `begin_reassignment` and `assign_from_subscribed` are replaced, to read on during a rebalance.
- `Subscription.assignment` and the states of its partitions: positions that outlive a rebalance.
- `Subscription._topics`: extended, because another subscription would stop everything.
- `AIOKafkaConsumer._client`: its `set_topics` tells it of these. Its `send` is wrapped, to see the
  errors in answers to fetches, and whether the group confirms that the client is a member, or has
  another in its place.
- `gzip_decode`, `snappy_decode`, `lz4_decode` and `zstd_decode` in the modules that read batches:
  replaced for the whole process, to limit the size of an expanded batch.
- `AIOKafkaConsumer._coordinator`, `GroupCoordinator._pending_exception`: why the group refuses the
  client. The client raises it only in a fetch, and without partitions nobody fetches.
- `GroupCoordinator.check_errors`: lets the client go on after such an error.
- `GroupCoordinator.request_rejoin`: the client forgets a change of the topics that it notices while
  the group is rebalanced.
- `GroupCoordinator.close`: ends the membership, and lets the client read on.
- Local variables of `Fetcher.fetched_records`, `FetchResult.getall` and
  `PartitionRecords._unpack_records`: what `getmany` had read when it met a header that it cannot
  decode, or a batch that it cannot expand.
- `MemoryRecords`, `PartitionRecords` and `FetchResult` in the fetcher's module, and the private
  fields and methods of the last two: replaced for the whole process, to decode records in C, and to
  take no more of them at a time than a number of bytes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from struct import Struct
from traceback import walk_tb
from typing import Any, NamedTuple, cast

import faust
import google_crc32c
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types.transports import TransportT
from mode import ServiceT

from ringfaust.protocol import decoder
from ringfaust.protocol.crowded_records import without_crowded
from ringfaust.protocol.record_batches import BATCH_HEADER_BYTES
from ringfaust.protocol.records import FetchedRecord
from ringfaust.worker.faust import decompression

_LENGTH = Struct(">8xi")
"""Where a batch has its length, which counts what follows."""
_CHECKSUM = Struct(">16xbI")
"""Where a batch of the current format has its format and the checksum of what follows."""
_FORMAT = 2
_FETCH = 1
_OF_MEMBERS = frozenset({12, 14})
"""Requests that the group answers without an error only to members that know what they have been
assigned: heartbeat and sync. One that joins may have missed an assignment."""
_TO_GROUP = _OF_MEMBERS | {11}
"""These, and the request to join."""
_FENCED_INSTANCE_ID = 82
"""Another process has joined with the same static id. The Kafka client does not know this code."""
_NOT_THERE = frozenset({1, 3, 100})
"""Error codes: the offset is out of range; the topic or partition, or the topic id, is unknown."""


class RebalanceListener(driver.ConsumerRebalanceListener):
    """Tells Faust of the first assignment, which starts its streams, and our thread of each."""

    _has_started = False

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> Any:
        """Called when a rebalance begins, which stops nothing (R124)."""
        return None if self._has_started else super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called when it has ended."""
        if not self._has_started:
            self._has_started = True
            await super().on_partitions_assigned(assigned)
        await cast(FaustConsumerThread, self._thread).pass_assignment()


class FaustConsumer(driver.Consumer):
    """Faust's consumer, with hooks for its thread and its fetch loop."""

    RebalanceListener = RebalanceListener

    def new_thread(self) -> FaustConsumerThread:
        """Create the thread that runs the Kafka client. Called once, by the constructor."""
        raise NotImplementedError

    async def fetch_loop(self, fetcher: ServiceT) -> None:
        """Fetch and deliver records until this consumer or `fetcher` should stop."""
        raise NotImplementedError

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return self.new_thread()

    async def _drain_messages(self, fetcher: ServiceT) -> None:
        await self.fetch_loop(fetcher)


class FaustConsumerThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, with a hook for the Kafka client."""

    def new_kafka_consumer(self, transport: driver.Transport, assignor: object) -> AIOKafkaConsumer:
        """Create the Kafka client, not started. Called in the thread, once."""
        raise NotImplementedError

    async def pass_assignment(self) -> None:
        """Pass on what the group has assigned. Called in the thread."""
        raise NotImplementedError

    @property
    def kafka_consumer(self) -> AIOKafkaConsumer:
        """The Kafka client.

        Raises:
            faust.exceptions.ConsumerNotStarted: the thread has not started yet.
        """
        return self._ensure_consumer()

    @property
    def group_error(self) -> Exception | None:
        """The error with which the group refused the client, until somebody fetches."""
        error: Exception | None = self.kafka_consumer._coordinator._pending_exception  # noqa: SLF001
        return error

    def try_group_again(self) -> None:
        """Let the client take part in the group again after `group_error`. Called in the thread.

        Raises:
            Exception: that error.
        """
        self.kafka_consumer._coordinator.check_errors()  # noqa: SLF001

    def request_rejoin(self) -> None:
        """Join the group again, as soon as possible. Called in the thread."""
        self.kafka_consumer._coordinator.request_rejoin()  # noqa: SLF001

    def subscribe_to(self, topics: frozenset[str]) -> None:
        """Join the group again with other topics, and read on meanwhile. Called in the thread.

        A new subscription would stop everything. So the present one gets them. It keeps what it
        had, since an answer of the group may still assign that; the assignor says what is wanted.
        """
        consumer: Any = self.kafka_consumer
        subscription = consumer._subscription.subscription  # noqa: SLF001
        if subscription is None:
            return  # it begins with them
        subscription._topics |= topics  # noqa: SLF001
        consumer._client.set_topics(topics)  # noqa: SLF001
        self.request_rejoin()

    async def close_coordinator(self) -> None:
        """Take part in the group no more, and go on reading. Called in the thread.

        A static member stays in the group until it is removed, or its session expires. Cancelling
        this does not cancel the coordination; if it did, each later fetch would be cancelled, too.
        """
        coordinator: Any = self.kafka_consumer._coordinator  # noqa: SLF001
        if coordinator is not None:  # the client has begun: a worker may be stopped before that
            await asyncio.shield(coordinator.close())

    def keep_reading(
        self,
        being_read: Callable[[], Iterable[TopicPartition]],
        on_assigned: Callable[[frozenset[TopicPartition]], None],
    ) -> None:
        """Let the client read on while the group is rebalanced, and after that (R124).

        Without this, it delivers nothing meanwhile and then forgets all positions. Now it
        keeps what is being read, even if the group has given it to another member, and leaves a new
        partition alone until it is sought and resumed.

        Args:
            being_read: returns what is being read.
            on_assigned: called with what the group has assigned, in the thread.
        """
        subscription: Any = self.kafka_consumer._subscription  # noqa: SLF001
        assign = subscription.assign_from_subscribed

        def assign_and_keep(assigned: Collection[TopicPartition]) -> None:
            on_assigned(frozenset(assigned))
            kept = {tp: self.known_position(tp) for tp in being_read()}
            assign({*assigned, *kept})
            now = subscription.subscription.assignment
            for tp in now.tps:
                state, position = now.state_value(tp), kept.get(tp)
                state.seek(position or 0)
                if position is None:
                    state.pause()

        subscription.assign_from_subscribed = assign_and_keep
        subscription.begin_reassignment = lambda: None

    def known_position(self, where: TopicPartition) -> int | None:
        """The offset of the next record; None while the client has none.

        The client's own method waits for one, which never comes if the topic has been deleted.
        """
        subscription = self.kafka_consumer._subscription.subscription  # noqa: SLF001
        assignment = subscription and subscription.assignment
        if assignment is None or where not in assignment.tps:
            return None
        state = assignment.state_value(where)
        return cast(int, state.position) if state.has_valid_position else None

    def set_prefetch_backoff(self, seconds: float) -> None:
        """Set how long unrequested records keep the client from fetching from their broker."""
        self.kafka_consumer._fetcher._prefetch_backoff = seconds  # noqa: SLF001

    def watch_answers(
        self,
        on_error: Callable[[TopicPartition], None],
        on_member: Callable[[float], None],
        on_twin: Callable[[], None],
    ) -> None:
        """Look at the answers of the brokers, in the thread, before the client does.

        Args:
            on_error: called for each partition in a fetch whose position or topic does not exist.
            on_member: called when the group confirms that the client is a member, with the time
                (monotonic, in seconds) when it was asked.
            on_twin: called when another process has joined the group with this one's static id.
        """
        client: Any = self.kafka_consumer._client  # noqa: SLF001
        send = client.send

        async def watched(node_id: Any, request: Any, **options: Any) -> Any:
            asked_s = time.monotonic()
            response = await send(node_id, request, **options)
            if response.API_KEY in _OF_MEMBERS and not response.error_code:
                on_member(asked_s)
            elif response.API_KEY in _TO_GROUP and response.error_code == _FENCED_INSTANCE_ID:
                on_twin()
            elif response.API_KEY == _FETCH:
                for topic, partitions in response.topics:
                    for partition, error_code, *_ in partitions:
                        if error_code in _NOT_THERE:
                            on_error(TopicPartition(topic, partition))
            return response

        client.send = watched

    def close(self) -> None:
        """Do nothing: the stop that is under way closes the client, in its own thread.

        Faust calls this if the group is rebalanced during a stop. It would close the client from
        the app's thread; the stop then finds it closed, does not leave the group, or hangs.
        """

    def _stopped_set(self) -> None:
        with suppress(RuntimeError):  # after a crash, the thread may have closed its loop already
            super()._stopped_set()

    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        self._assignor = self.app.assignor
        return self.new_kafka_consumer(transport, self._assignor)


class FaustApp(faust.App):
    """A Faust app without tables, with hooks for its transport, rebalance and stop."""

    def __init__(self, id: str, **options: Any) -> None:
        super().__init__(id, **{"TableManager": _NoTables, **options})

    def new_transport(self) -> TransportT:
        """Create the transport of the consumer."""
        raise NotImplementedError

    async def before_consumer_stop(self) -> None:
        """Called before a consumer that exists is stopped."""
        raise NotImplementedError

    def _new_transport(self) -> TransportT:
        return self.new_transport()

    async def _stop_consumer(self) -> None:
        if self._consumer is None:
            return
        await self.before_consumer_stop()
        await super()._stop_consumer()


class _NoTables(TableManager):
    """Faust's table manager, for an app without tables."""

    async def on_start(self) -> None:
        # Faust waits a second here, for tables to be declared.
        await self._update_channels()
        await self.recovery.start()


def limit_decompression() -> None:
    """Have the Kafka client refuse batches that expand to more than a limit (R116).

    Such a batch makes `getmany` raise `CannotExpand`. This holds for every consumer of the process.
    """
    for name, expand in EXPANDERS.items():
        setattr(_WITH_HEADERS, name, _without_crowded(expand))
        if hasattr(_OLD, name):  # the old format has no zstd, and no headers
            setattr(_OLD, name, expand)


def _without_crowded(expand: Callable[[decompression.Buffer], bytes]) -> Callable[[Any], bytes]:
    return lambda payload: without_crowded(expand(payload))


def decode_in_c() -> None:
    """Have `ringfaust.protocol.decoder` decode records for every consumer of the process.

    They are `FetchedRecord`s then. What it leaves out, the Kafka client decodes as before. A call
    returns no more of a partition than `FETCH_BYTES`, and one record or a few (R121).
    """
    fetcher.MemoryRecords = _Fetched
    fetcher.PartitionRecords = _DecodedRecords
    fetcher.FetchResult = _BoundedResult


class _Fetched:
    """What a broker returned of a partition: aiokafka's `MemoryRecords`, with the bytes at hand."""

    def __init__(self, raw: bytes) -> None:
        records = MemoryRecords(raw)
        self.raw = raw
        self.has_next = records.has_next
        self.next_batch = records.next_batch
        self.size_in_bytes = records.size_in_bytes


class _DecodedRecords(PartitionRecords):  # type: ignore[misc]
    """The records of a partition, decoded in C where possible."""

    def __iter__(self) -> Iterator[Any]:
        return cast(Iterator[Any], self._records_iterator)

    def _unpack_records(self) -> Iterator[Any]:
        """The base class's method, apart from how it decodes the records of a batch."""
        tp, records, end = self._tp, self._records, 0
        while records.has_next():
            next_batch = records.next_batch()
            start, end = end, end + _LENGTH.unpack_from(records.raw, end)[0] + _LENGTH.size
            if self._check_crcs and not _is_intact(next_batch, records.raw[start:end]):
                raise CorruptRecordException(f"Invalid CRC - {tp}")
            is_aborted = self._is_aborted(next_batch)  # of control batches, too: they end it
            if is_aborted or next_batch.is_control_batch:
                self.next_fetch_offset = next_batch.next_offset
                continue
            found = self._decoded(records.raw, start)
            for record in found or self._by_client(next_batch, records.raw[start:end]):
                self.next_fetch_offset = record.offset + 1
                yield record
            self.next_fetch_offset = next_batch.next_offset

    def _decoded(self, raw: bytes, start: int) -> list[FetchedRecord] | None:
        if self._key_deserializer or self._value_deserializer:
            return None
        return decoder.records_of(raw, start, self.next_fetch_offset, *self._tp)

    def _by_client(self, batch: Any, raw: bytes) -> Iterator[FetchedRecord]:
        first = self.next_fetch_offset
        for record in _uncrowded(batch, raw):
            if record.offset >= first:
                yield _fetched(self._consumer_record(self._tp, record))

    def _is_aborted(self, batch: Any) -> bool:
        """Whether nobody may read the batch: its transaction was aborted."""
        if self._isolation_level != READ_COMMITTED or batch.producer_id is None:
            return False
        self._consume_aborted_up_to(batch.base_offset)
        if batch.is_control_batch and self._contains_abort_marker(batch):
            self._aborted_producers.discard(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._aborted_producers


class _BoundedResult(FetchResult):  # type: ignore[misc]
    """What was fetched of a partition, taken in parts that are bounded in bytes."""

    _partition_records: Any

    def getall(self, max_records: int | None = None) -> list[FetchedRecord]:
        """The base class's method, apart from the bound."""
        if not self.check_assignment(self._topic_partition) or not self.has_more():
            return []
        ret_list: list[FetchedRecord] = []
        held = 0
        records: Iterator[FetchedRecord] = iter(self._partition_records)
        while held < FETCH_BYTES and (max_records is None or len(ret_list) < max_records):
            left = _AT_ONCE if max_records is None else min(_AT_ONCE, max_records - len(ret_list))
            begin = len(ret_list)
            ret_list.extend(islice(records, left))  # keeps what comes before an error
            held += decoder.held_bytes(ret_list[begin:])
            if len(ret_list) - begin < left:
                self._update_position()
                self._partition_records = None
                return ret_list
        self._update_position()
        return ret_list


def _fetched(record: ConsumerRecord[Any, Any]) -> FetchedRecord:
    return FetchedRecord(
        record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type,
        record.key, record.value, record.headers,
    )  # fmt: skip


def _uncrowded(batch: Any, raw: bytes) -> Any:
    """The batch, with a placeholder for each record that has too many headers (R121).

    In a compressed one, the functions that expand it put them there.
    """
    if not isinstance(batch, DefaultRecordBatch) or batch.compression_type:
        return batch
    records = raw[BATCH_HEADER_BYTES:]
    left = without_crowded(records)
    return batch if left is records else DefaultRecordBatch(raw[:BATCH_HEADER_BYTES] + left)


def _is_intact(batch: Any, raw: bytes) -> bool:
    """Whether the checksum is right. The Kafka client computes it without the processor's help."""
    magic, found = _CHECKSUM.unpack_from(raw)
    if magic != _FORMAT:
        return cast(bool, batch.validate_crc())
    return bool(google_crc32c.value(raw[_CHECKSUM.size :]) == found)


EXPANDERS = {
    "gzip_decode": decompression.expand_gzip,
    "snappy_decode": decompression.expand_snappy,
    "lz4_decode": decompression.expand_lz4,
    "zstd_decode": decompression.expand_zstd,
}
_WITH_HEADERS, _OLD = (
    sys.modules[kind.__module__] for kind in (DefaultRecordBatch, LegacyRecordBatch)
)
READERS_OF_BATCHES = (_WITH_HEADERS, _OLD)
"""The modules of aiokafka that read batches: in C if it is available, else in Python."""
FETCH_BYTES = 4 * 1024 * 1024
"""Most memory of the records that one fetch takes of a partition, give or take `_AT_ONCE`."""
_AT_ONCE = 16
"""Records that are taken before their bytes are counted."""
FETCH_ERRORS = (UnicodeDecodeError, decompression.CannotExpand)
"""What `getmany` raises because of a record that it cannot decode."""


_FRAMES = ("fetched_records", "getall", "_unpack_records")
"""The functions whose variables tell what `getmany` had read."""


class FailedFetch(NamedTuple):
    """What `getmany` had read when it failed to decode a record."""

    fetched: dict[TopicPartition, list[FetchedRecord]]
    """Records that it had already taken from the client's buffer."""
    tp: TopicPartition
    """The partition with the record that it cannot decode."""
    first_offset: int
    """The offset of that record."""
    next_offset: int
    """The offset after the record batch that contains it."""


def failed_fetch(error: Exception) -> FailedFetch:
    """Recover what `getmany` had read, from the frames of the error that it raised.

    Raises:
        Exception: `error` itself, if the frames are not as expected.
    """
    # Not of the frame that has caught the error: its variables would keep themselves alive, and
    # with them all that was expanded, until the collector comes, which is seldom.
    variables = {
        name: frame.f_locals
        for frame, _ in walk_tb(error.__traceback__)
        if (name := frame.f_code.co_name) in _FRAMES
    }
    try:
        others = variables["fetched_records"]["drained"]
        records = variables["getall"]["ret_list"]
        unpacking = variables["_unpack_records"]
        tp, batch = unpacking["tp"], unpacking["next_batch"]
        first_offset = unpacking["self"].next_fetch_offset
    except (KeyError, AttributeError):
        raise error from None
    return FailedFetch({**others, tp: records}, tp, first_offset, batch.next_offset)
