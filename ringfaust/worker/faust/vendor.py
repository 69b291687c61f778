"""Every private API of Faust, mode and aiokafka that the worker uses, behind public names.

A private API may change in any release, so it appears here and nowhere else in `ringfaust.worker`
(`ringfaust.transactional.vendor` does the same for producers). `tests/worker/faust/test_vendor.py`
pins each name below: its signature and the behaviour that we rely on. `pyproject.toml` admits patch
releases only.

Faust 0.15:

- `Consumer._new_consumer_thread`, `Consumer._drain_messages`: overridden, to fetch whole batches.
- `AIOKafkaConsumerThread.__post_init__`, `on_start`, `on_thread_stop`: extended.
- `AIOKafkaConsumerThread._create_worker_consumer`: overridden, to choose the client's options.
- `AIOKafkaConsumerThread._ensure_consumer`, `_assignor`: the Kafka client, and its assignor.
- `AIOKafkaConsumerThread.close`: overridden, because it closes the client from another thread.
- `Consumer.RebalanceListener`: extended, because Faust stops everything for each rebalance.
- mode's `ServiceThread._close_thread_loop_on_stop`: set, because mode takes a loop that it is given
  for somebody else's.
- mode's `ServiceThread._stopped_set`: overridden, because it fails in a thread that has ended.
- `TableManager._update_channels`: a table manager without tables.
- `App._new_transport`, `App._stop_consumer`, `App._consumer`: overridden, to use our transport and
  to stop in order.

aiokafka 0.14:

- `AIOKafkaConsumer._subscription`: its `begin_reassignment` and `assign_from_subscribed` are
  replaced, because the member of the group reads nothing.
- `Subscription._topics`: extended, because another subscription would forget the assignment.
- `AIOKafkaConsumer._client`: its `set_topics` tells it of these. Its `send` is wrapped, to see
  whether the group confirms that the client is a member, or has another in its place.
- `gzip_decode`, `snappy_decode`, `lz4_decode` and `zstd_decode` in the modules that read batches:
  replaced for the whole process, to limit the size of an expanded batch.
- `AIOKafkaConsumer._coordinator`, `GroupCoordinator._pending_exception` and `_coordination_task`:
  why the group refuses the client, or the client has given up. It raises that only in a fetch, and
  this client never fetches.
- `GroupCoordinator.check_errors`: lets the client go on after such an error.
- `GroupCoordinator.request_rejoin`: the client forgets a change of the topics that it notices while
  the group is rebalanced.
- `GroupCoordinator.close`: ends the membership.
- `MemoryRecords`, `PartitionRecords` and `FetchResult` in the fetcher's module, and the private
  fields and methods of the last two: replaced for the whole process, to decode records in C, and to
  take no more of them at a time than a number of bytes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import Any, cast

import faust
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException, KafkaError
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.transports import TransportT
from mode import ServiceT

from ringfaust.event_loop import new_event_loop
from ringfaust.kafka.packed_batch import is_intact
from ringfaust.protocol import decoder
from ringfaust.protocol.crowded_records import without_crowded
from ringfaust.protocol.record_batches import BATCH_HEADER_BYTES
from ringfaust.protocol.records import FetchedRecord
from ringfaust.worker.faust import decompression

_LENGTH = Struct(">8xi")
"""Where a batch has its length, which counts what follows."""
_OF_MEMBERS = frozenset({12, 14})
"""Requests that the group answers without an error only to members that know what they have been
assigned: heartbeat and sync. One that joins may have missed an assignment."""
_TO_GROUP = _OF_MEMBERS | {11}
"""These, and the request to join."""
_FENCED_INSTANCE_ID = 82
"""Another process has joined with the same static id. The Kafka client does not know this code."""


class RebalanceListener(driver.ConsumerRebalanceListener):
    """Tells Faust of the first assignment, which starts its fetcher, and our thread of each."""

    _has_started = False

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> Any:
        """Called when a rebalance begins, which stops nothing (R124)."""
        return None if self._has_started else super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called when it has ended; with nothing, because the client reads nothing."""
        thread = cast(FaustConsumerThread, self._thread)
        if not self._has_started:
            self._has_started = True
            await super().on_partitions_assigned(thread.assigned)
        await thread.pass_assignment()


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
    """Faust's consumer thread, with our event loop and a hook for the Kafka client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, thread_loop=new_event_loop(), **kwargs)
        self._close_thread_loop_on_stop = True

    def new_kafka_consumer(self, transport: driver.Transport, assignor: object) -> AIOKafkaConsumer:
        """Create the Kafka client, not started. Called in the thread, once."""
        raise NotImplementedError

    assigned: frozenset[TP] = frozenset()
    """What the group has assigned. Any thread."""

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
        """The error with which the group refused the client, until it tries again.

        Raises:
            Exception: the client has stopped to take part in the group.
        """
        coordinator: Any = self.kafka_consumer._coordinator  # noqa: SLF001
        task: asyncio.Task[None] = coordinator._coordination_task  # noqa: SLF001
        if task.done() and not task.cancelled():
            task.result()
        error: Exception | None = coordinator._pending_exception  # noqa: SLF001
        return error

    def try_group_again(self) -> None:
        """Let the client join the group again after `group_error`. Called in the thread."""
        with suppress(KafkaError):  # it raises that error
            self.kafka_consumer._coordinator.check_errors()  # noqa: SLF001
        self.request_rejoin()

    def request_rejoin(self) -> None:
        """Join the group again, as soon as possible. Called in the thread."""
        self.kafka_consumer._coordinator.request_rejoin()  # noqa: SLF001

    def subscribe_to(self, topics: frozenset[str]) -> None:
        """Join the group again with other topics. Called in the thread.

        The present subscription gets them, since a new one would begin without an assignment. It
        keeps what it had, since an answer of the group may still assign that; the assignor says
        what is wanted.
        """
        consumer: Any = self.kafka_consumer
        subscription = consumer._subscription.subscription  # noqa: SLF001
        if subscription is None:
            return  # it begins with them
        subscription._topics |= topics  # noqa: SLF001
        consumer._client.set_topics(topics)  # noqa: SLF001
        self.request_rejoin()

    async def close_coordinator(self) -> None:
        """Take part in the group no more. Called in the thread.

        A static member stays in the group until it is removed, or its session expires. Cancelling
        this does not cancel the coordination, which has more to do.
        """
        coordinator: Any = self.kafka_consumer._coordinator  # noqa: SLF001
        if coordinator is not None:  # the client has begun: a worker may be stopped before that
            await asyncio.shield(coordinator.close())

    def read_nothing(self) -> None:
        """Let the client take part in the group, and read nothing of what it is assigned (R124)."""
        subscription: Any = self.kafka_consumer._subscription  # noqa: SLF001
        assign = subscription.assign_from_subscribed

        def assign_nothing(assigned: Iterable[TopicPartition]) -> None:
            self.assigned = frozenset(TP(*tp) for tp in assigned)
            assign(set())

        subscription.assign_from_subscribed = assign_nothing
        subscription.begin_reassignment = lambda: None

    def watch_answers(
        self, on_member: Callable[[float], None], on_twin: Callable[[], None]
    ) -> None:
        """Look at the answers of the group, in the thread, before the client does.

        Args:
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

    Decoding such a batch raises `CannotExpand`. This holds for every consumer of the process.
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
    fetcher.PartitionRecords = DecodedRecords
    fetcher.FetchResult = _BoundedResult


class _Fetched:
    """What a broker returned of a partition: aiokafka's `MemoryRecords`, with the bytes at hand."""

    def __init__(self, raw: bytes) -> None:
        records = MemoryRecords(raw)
        self.raw = raw
        self.has_next = records.has_next
        self.next_batch = records.next_batch
        self.size_in_bytes = records.size_in_bytes


class DecodedRecords(PartitionRecords):  # type: ignore[misc]
    """The records of a partition, decoded in C where possible. `next_fetch_offset` passes each."""

    batch_end = 0
    """The offset after the batch that is being decoded."""

    def __iter__(self) -> Iterator[Any]:
        return cast(Iterator[Any], self._records_iterator)

    def _unpack_records(self) -> Iterator[Any]:
        """The base class's method, apart from how it decodes the records of a batch."""
        tp, records, end = self._tp, self._records, 0
        while records.has_next():
            next_batch = records.next_batch()
            self.batch_end = next_batch.next_offset
            start, end = end, end + _LENGTH.unpack_from(records.raw, end)[0] + _LENGTH.size
            is_new = isinstance(next_batch, DefaultRecordBatch)
            if self._check_crcs and not (
                is_intact(records.raw[start:end]) if is_new else next_batch.validate_crc()
            ):
                raise CorruptRecordException(f"Invalid CRC - {tp}")
            if self._is_aborted(next_batch) or next_batch.is_control_batch:  # which may end it
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
        """Whether nobody may read it. Compaction may have removed the marker of a control batch."""
        if self._isolation_level != READ_COMMITTED or batch.producer_id is None:
            return False
        self._consume_aborted_up_to(batch.base_offset)
        if batch.is_control_batch and ABORT_MARKER in [ControlRecord.parse(it.key) for it in batch]:
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
        has_more = take(ret_list, iter(self._partition_records), max_records)
        self._update_position()
        if not has_more:
            self._partition_records = None
        return ret_list


def decoded(
    tp: TopicPartition,
    raw: bytes,
    aborted: list[tuple[int, int]] | None,
    first_offset: int,
    *,
    checks_crcs: bool,
) -> DecodedRecords:
    """The committed records of what a broker has returned, from an offset on.

    Args:
        tp: the partition.
        raw: batches of records.
        aborted: aborted transactions, each a producer and an offset.
        first_offset: the batches may have records before it.
        checks_crcs: raise an error for records whose checksum is wrong.
    """
    return DecodedRecords(
        tp, _Fetched(raw), aborted, first_offset, None, None, checks_crcs, READ_COMMITTED
    )


def take(into: list[FetchedRecord], records: Iterator[FetchedRecord], most: int | None) -> bool:
    """Move records to an empty list, up to a number and a number of bytes (R121).

    Returns:
        whether there may be more. What comes before an error is in the list.
    """
    held = 0
    while held < FETCH_BYTES and (most is None or len(into) < most):
        begin = len(into)
        left = _AT_ONCE if most is None else min(_AT_ONCE, most - begin)
        into.extend(islice(records, left))
        held += decoder.held_bytes(into[begin:])
        if len(into) - begin < left:
            return False
    return True


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
"""What decoding raises because of a record that it cannot decode."""
