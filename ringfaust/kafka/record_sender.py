"""Write records in transactions that also commit how far the work is, for work that can continue.

A transaction contains some records, and offsets of a consumer group that say what is done. So a run
that is killed continues where its last transaction ended, and nothing is written twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from ringfaust.kafka.vendor import (
    FAILED_BETWEEN_CALLS,
    failure_between_calls,
    send_once,
    stop_client,
)
from ringfaust.protocol.records import Headers

TRANSACTION_RECORDS = 1_000
"""The most records of one transaction."""
TRANSACTION_BYTES = 4_000_000
"""The most bytes of one transaction, unless a single record is larger."""
SENDING_ERRORS = (KafkaError, *FAILED_BETWEEN_CALLS)
"""What the calls of a sender may raise; `RecordSender.cause` tells which of them are failures."""


class OutgoingRecord(NamedTuple):
    """A record, and where it goes."""

    topic: str
    partition: int | None
    """None: the producer's partitioner decides."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class RecordSender:
    """A transactional producer. Starting it stops an earlier run that is still writing.

    Args:
        client: options of any Kafka client.
        transactional_id: the same for each run of the same work.
        max_record_bytes: the largest record.
    """

    def __init__(
        self, client: Mapping[str, Any], transactional_id: str, max_record_bytes: int
    ) -> None:
        self._producer = AIOKafkaProducer(
            **client,
            transactional_id=transactional_id,
            acks="all",
            max_request_size=2 * max_record_bytes,
        )
        send_once(self._producer)

    async def start(self) -> None:
        """Connect, and settle the outcome of an earlier run."""
        await self._producer.start()

    async def stop(self) -> None:
        """Disconnect. An open transaction is never committed."""
        await stop_client(self._producer)

    def cause(self, error: BaseException) -> BaseException | None:
        """Return why a call raised one of `SENDING_ERRORS`; None: a programming error did."""
        failed = failure_between_calls(self._producer)
        return failed or (error if isinstance(error, KafkaError) else None)

    async def commit(
        self,
        records: Iterable[OutgoingRecord],
        offsets: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        group: str,
    ) -> None:
        """Write records and offsets in one transaction.

        Args:
            records: in the order in which each partition gets them.
            offsets: called when the records are written; says what is done then.
            group: the consumer group that keeps the offsets.
        """
        producer = self._producer
        await producer.begin_transaction()
        written = [
            await producer.send(
                each.topic, each.value, key=each.key, partition=each.partition,
                headers=list(each.headers),
            )
            for each in records
        ]  # fmt: skip
        for result in await asyncio.gather(*written, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        await producer.send_offsets_to_transaction(offsets(), group)
        await producer.commit_transaction()
