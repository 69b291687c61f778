"""One Kafka transaction, step by step. Everything that commits a transaction does it here.

1. **Fence.** `start` ends a transaction that an earlier writer with the same transactional id left
   open, and stops that writer. What was committed before is final only after this.
2. **Begin.** Nothing is sent to the brokers yet.
3. **Produce.** The producer adds each partition to the transaction before it sends data to it. In
   version 2 of Kafka's transactions the request with the data does that.
4. **Commit offsets** of a consumer group: how far the work is, all or nothing with the records.
5. **Wait** until the brokers have stored every batch. aiokafka would commit without a batch that
   they have refused.
6. **End.** The request is sent once (R117). If its answer is lost, the outcome is unknown: only a
   new writer with the same id can settle it, in step 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from ringfaust.protocol.records import OutgoingRecord
from ringfaust.transactional.clients import Startable
from ringfaust.transactional.vendor import (
    FAILED_BETWEEN_CALLS,
    Direct,
    failure_between_calls,
    send_once,
    sender_bug,
    stop_client,
    use_version_2,
)

TRANSACTION_RECORDS = 1_000
"""The most records of one transaction of an import or a redrive."""
TRANSACTION_BYTES = 4_000_000
"""The most bytes of one, unless a single record is larger."""
TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError, RecordTooLargeError)
"""Errors of a record or a batch that is larger than its topic allows."""
_ABORT_TIMEOUT_S = 2.0
_STOP_TIMEOUT_S = 2.0


def size_bytes(record: OutgoingRecord) -> int:
    """What a record counts of `TRANSACTION_BYTES`."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


Sent = Sequence[asyncio.Future[RecordMetadata]]
"""What was produced; each is done once the brokers have stored it."""
Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


class TransactionalWriter:
    """A producer with a transactional id. After an error it can only be stopped.

    Args:
        client: options of any Kafka client.
        transactional_id: `start` stops an earlier writer with this id.
        options: more options of aiokafka's producer.
    """

    def __init__(self, client: Mapping[str, Any], transactional_id: str, **options: Any) -> None:
        self.producer = AIOKafkaProducer(
            **client, transactional_id=transactional_id, acks="all", **options
        )
        send_once(self.producer)
        self.may_be_committed = False
        """Whether the transaction that failed had begun to end, so that its outcome is unknown."""
        self._direct: Direct | None = None

    async def start(self) -> None:
        """Connect. An earlier writer is stopped, and the transaction that it left open aborted.

        Raises:
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        await self.producer.start()
        try:
            self._direct = await use_version_2(self.producer)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Disconnect. An open transaction is never committed."""
        await stop_client(self.producer)

    @property
    def adds_by_itself(self) -> bool:
        """Whether a produce request adds its partitions to the transaction."""
        return self._direct is not None

    async def commit_batches(
        self,
        batches: Sequence[tuple[str, int, Sequence[BatchBuilder]]],
        offsets: Offsets,
        group: str,
        *,
        is_begun: bool,
    ) -> list[int]:
        """Commit batches of records and offsets, as `commit` does, in as few requests as possible.

        Args:
            batches: for each partition its topic, its number and its batches, at least one.
            offsets: as for `commit`.
            group: as for `commit`.
            is_begun: as for `commit`.

        Returns:
            For each partition the offset of its last batch.

        Raises:
            Exception: as `commit`.
        """
        if (
            self._direct is not None
            and not (offsets or is_begun)
            and {len(of_one) for *_, of_one in batches} == {1}
        ):
            self.may_be_committed = False
            each_one = [(topic, partition, of_one[0]) for topic, partition, of_one in batches]
            if (stored := await self._direct.produce(each_one)) is not None:
                self.may_be_committed = True
                await self._direct.end()
                return stored

        async def produce() -> Sent:
            # All at once: then one request adds all partitions, and each request has a part of
            # every topic.
            of_each = await asyncio.gather(
                *(
                    self.send_batches([(topic, partition, batch) for batch in of_one])
                    for topic, partition, of_one in batches
                )
            )
            last.extend(sent[-1] for sent in of_each)
            return [each for sent in of_each for each in sent]

        last: list[asyncio.Future[RecordMetadata]] = []
        await self.commit(produce, offsets, group, is_begun=is_begun)
        return [each.result().offset for each in last]

    async def commit(
        self,
        produce: Callable[[], Awaitable[Sent]],
        offsets: Offsets = MappingProxyType({}),
        group: str = "",
        *,
        is_begun: bool = False,
    ) -> list[RecordMetadata]:
        """Commit records and offsets in one transaction, and return the records' positions.

        Args:
            produce: sends the records.
            offsets: how far the work is then. They are read after the records were produced.
            group: the consumer group that keeps the offsets.
            is_begun: the transaction was begun before.

        Raises:
            ProducerFenced: a newer writer has taken over.
            KafkaError: the brokers failed; `may_be_committed` says whether the outcome is unknown.
            Exception: any other error is a programming error, here or in the Kafka client.
        """
        self.may_be_committed = False
        try:
            if not is_begun:  # 1. Begin.
                await self.producer.begin_transaction()
            sent = await produce()  # 2. Send the records.
            if offsets:  # 3. Send the offsets.
                if self.adds_by_itself:  # else both would add to the transaction at the same time
                    await asyncio.gather(*sent)
                await self.producer.send_offsets_to_transaction(offsets, group)
            stored = await asyncio.gather(*sent)  # 4. Wait until the brokers have the records.
            self.may_be_committed = True  # 5. End: from here on an error leaves it unknown.
            await self.producer.commit_transaction()
        except (*FAILED_BETWEEN_CALLS, KafkaError) as error:
            # What a call raises may only say that an earlier one has failed.
            cause = sender_bug(self.producer) or failure_between_calls(self.producer) or error
            if cause is error:
                raise
            raise cause from None
        return stored

    async def abort(self) -> None:
        """Abort the transaction, for which readers would wait otherwise until it times out.

        Raises:
            TimeoutError: the brokers do not answer soon.
            KafkaError: the brokers failed.
        """
        async with asyncio.timeout(_ABORT_TIMEOUT_S):
            await self.producer.abort_transaction()

    async def send(self, records: Iterable[OutgoingRecord]) -> Sent:
        """Produce records; each partition gets its own in this order."""
        return [
            _noted(
                await self.producer.send(
                    each.topic,
                    each.value,
                    key=each.key,
                    headers=list(each.headers),
                    partition=each.partition,
                )
            )
            for each in records
        ]

    async def send_batches(self, batches: Iterable[tuple[str, int, BatchBuilder]]) -> Sent:
        """Produce batches of records, each with its topic and partition."""
        return [
            _noted(await self.producer.send_batch(batch, topic, partition=partition))
            for topic, partition, batch in batches
        ]


class Abortable(Startable, Protocol):
    """A `TransactionalWriter` or a stand-in for one."""

    async def abort(self) -> None:
        """Abort the transaction."""


W = TypeVar("W", bound=Abortable)


@asynccontextmanager
async def opened(writer: W) -> AsyncIterator[W]:
    """Start a writer, and stop it at the end of the block.

    A transaction that an error in the block leaves open is aborted.
    """
    try:
        await writer.start()
        yield writer
    except BaseException:
        with suppress(*FAILED_BETWEEN_CALLS, KafkaError, TimeoutError):
            await writer.abort()
        raise
    finally:
        with suppress(TimeoutError):  # it waits for brokers that are away
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await writer.stop()


def _noted(sent: asyncio.Future[RecordMetadata]) -> asyncio.Future[RecordMetadata]:
    """Retrieve the error of what was sent, which asyncio would log if nobody waits for it."""
    sent.add_done_callback(lambda each: each.cancelled() or each.exception())
    return sent
