"""One batch is one Kafka transaction: changelog, outputs and input offsets, all or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from ringfaust.kafka.names import worker_group
from ringfaust.kafka.vendor import (
    FAILED_BETWEEN_CALLS,
    failure_between_calls,
    send_once,
    sender_bug,
    use_backoff,
)
from ringfaust.processor.processor import Outputs
from ringfaust.protocol.records import OutRecord, Role

BATCH_BYTES = 1_000_000
"""Size at which a record batch is closed. Ringfaust's topics accept twice as much."""

_RETRY_MS = 5


class RecordBatches:
    """Records for one topic, packed into Kafka's record batches as they are added.

    No record is kept as Python objects until the commit. Packed while it is still in the CPU cache,
    an evicted record costs half of what it costs to collect and pack later.
    """

    __slots__ = ("_append", "_create", "_now_ms", "builders")

    def __init__(self, create: Callable[[], BatchBuilder]) -> None:
        self._create = create
        self._now_ms = 0
        """Time of the first record, which retention goes by. The builder may have been created long
        before it."""
        self.builders = [create()]
        self._append = self.builders[0].append

    def __len__(self) -> int:
        return sum(builder.record_count() for builder in self.builders)

    def append(self, record: OutRecord, /) -> None:
        """Pack one more record."""
        key, value, headers = record
        if not self._now_ms:
            self._now_ms = time.time_ns() // 1_000_000
        if self._append(timestamp=self._now_ms, key=key, value=value, headers=headers) is None:
            self.builders.append(self._create())
            self._append = self.builders[-1].append
            self._append(timestamp=self._now_ms, key=key, value=value, headers=headers)


class TransactionalProducer:
    """The transactional producer of one partition; starting it fences an earlier owner."""

    def __init__(
        self,
        application: str,
        partition: int,
        topics: Mapping[str, str],
        client: Mapping[str, Any],
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
    ) -> None:
        """Connect to nothing yet.

        Args:
            application: the consumer group for which offsets are committed.
            partition: of the inputs, and of the outputs that name no other.
            topics: names of ringfaust's topics by role.
            client: options of any Kafka client.
            transactional_id: starting with it fences an earlier owner.
            timeout_ms: the brokers abort a transaction that takes longer.
        """
        self._group = worker_group(application)
        self._partition = partition
        self._topics = topics
        self._producer = AIOKafkaProducer(
            **client,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            acks="all",
            max_batch_size=BATCH_BYTES,
            # A transaction that begins right after another finds the coordinator still busy.
            retry_backoff_ms=_RETRY_MS,
            max_request_size=2 * BATCH_BYTES,
        )
        use_backoff(self._producer)
        send_once(self._producer)

    async def start(self) -> None:
        """Connect, and abort the transaction that an earlier owner left open."""
        await self._producer.start()

    async def stop(self) -> None:
        """Disconnect. An open transaction is never committed."""
        await self._producer.stop()

    def new_batches(self) -> RecordBatches:
        """An empty container for the records of one topic."""
        return RecordBatches(self._producer.create_batch)

    async def commit(
        self,
        outputs: Outputs[RecordBatches],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        note: str = "",
    ) -> int:
        """Commit everything in one transaction.

        Args:
            outputs: records of the processor.
            writes: rows for the changelog.
            offsets: by input topic: the next offset to read.
            note: committed with the offsets, for the next owner.

        Returns:
            The changelog offset after `writes`; 0 if there are none.

        Raises:
            KafkaError: the outcome is unknown; stop this producer and start another (R117).
            Exception: any other error is a programming error, here or in the Kafka client.
        """
        try:
            return await self._commit(outputs, writes, offsets, note)
        except (*FAILED_BETWEEN_CALLS, KafkaError) as error:
            ended = failure_between_calls(self._producer)
            failed = sender_bug(self._producer) or ended
            if failed is None or failed is error:
                raise
            raise failed from None

    async def _commit(
        self,
        outputs: Outputs[RecordBatches],
        writes: Sequence[tuple[bytes, bytes | None]],
        offsets: Mapping[str, int],
        note: str,
    ) -> int:
        producer = self._producer
        await producer.begin_transaction()
        sent = []
        for (role, partition), batches in outputs.items():
            sent += await self._send(role, partition, batches)
        changelog = self.new_batches()
        for key, value in writes:
            changelog.append((key, value, []))
        if writes:
            sent += await self._send(Role.CHANGELOG, None, changelog)
        if offsets:
            await producer.send_offsets_to_transaction(
                {
                    TopicPartition(topic, self._partition): OffsetAndMetadata(at, note)
                    for topic, at in offsets.items()
                },
                self._group,
            )
        # If the broker has refused a batch, aiokafka would commit the rest without it.
        written = await asyncio.gather(*sent)
        await producer.commit_transaction()
        return int(written[-1].offset + changelog.builders[-1].record_count()) if writes else 0

    async def commit_rows(
        self,
        rows: Iterable[tuple[bytes, bytes | None]],
        offsets: Callable[[], Mapping[str, int]],
    ) -> None:
        """Commit any number of changelog rows in one transaction, without collecting them.

        Args:
            rows: the next one is taken when there is room for it.
            offsets: called after the last row; returns by input topic the next offset to read.

        Raises:
            KafkaError: the outcome is unknown; stop this producer and start another (R117).
        """
        producer = self._producer
        await producer.begin_transaction()
        packed = self.new_batches()
        for key, value in rows:
            packed.append((key, value, []))
            if len(packed.builders) > 1:
                await asyncio.gather(*await self._send(Role.CHANGELOG, None, packed))
                packed = self.new_batches()
        if len(packed):
            await asyncio.gather(*await self._send(Role.CHANGELOG, None, packed))
        if positions := offsets():
            await producer.send_offsets_to_transaction(
                {TopicPartition(topic, self._partition): at for topic, at in positions.items()},
                self._group,
            )
        await producer.commit_transaction()

    async def _send(
        self, role: Role, partition: int | None, batches: RecordBatches
    ) -> list[asyncio.Future[RecordMetadata]]:
        where = self._partition if partition is None else partition
        topic = self._topics[role]
        sent = []
        for builder in batches.builders:
            future = await self._producer.send_batch(builder, topic, partition=where)
            future.add_done_callback(_retrieve_error)
            sent.append(future)
        return sent


def _retrieve_error(future: asyncio.Future[RecordMetadata]) -> None:
    """Retrieve the error of a batch, which asyncio would log if the commit fails before it does."""
    if not future.cancelled():
        future.exception()
