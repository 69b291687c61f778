"""Writes records in Kafka transactions, for local transactions (R80)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation, IllegalStateError, KafkaError
from aiokafka.structs import RecordMetadata

from ringfaust.client.connection import OutgoingRecord, stop
from ringfaust.client.errors import OutcomeUnknown
from ringfaust.client.vendor import end_once


class TransactionalWriter:
    """Writes lists of records, each list in one Kafka transaction.

    A list is written only at its commit. A read_committed reader, and so the worker, gets nothing
    that follows an open transaction, so a transaction must not stay open while its list grows.
    """

    def __init__(self, kafka: Mapping[str, Any], transactional_id: str) -> None:
        """Prepare a writer, which connects at the first write.

        Args:
            kafka: arguments for aiokafka's producer.
            transactional_id: an id that no other client uses.
        """
        self._kafka = kafka
        self._id = transactional_id
        self._producer: AIOKafkaProducer | None = None
        self._lock = asyncio.Lock()

    async def write(self, records: Sequence[OutgoingRecord]) -> list[RecordMetadata]:
        """Write all records or none, and return their positions.

        Raises:
            OutcomeUnknown: the brokers failed during the commit, which is not tried again (R117).
            KafkaError: the brokers failed before the commit; nothing takes effect.
        """
        async with self._lock:
            producer = await self._opened()
            try:
                await producer.begin_transaction()
                stored = await _send(producer, records)
            except (AssertionError, IllegalOperation) as error:
                # This is how aiokafka reports that a transaction failed between two calls.
                await self._abort(producer)
                raise IllegalStateError(f"the transaction has failed: {error}") from error
            except BaseException:
                await self._abort(producer)
                raise
            try:
                await producer.commit_transaction()
            except BaseException as error:
                await self._drop(producer)
                if isinstance(error, KafkaError):
                    raise OutcomeUnknown(
                        f"the brokers failed while a transaction of {len(records)} records was "
                        f"committed ({error!r}): either all of them took effect or none"
                    ) from error
                raise
            return stored

    async def close(self) -> None:
        """Disconnect."""
        if self._producer is not None:
            await self._drop(self._producer)

    async def _opened(self) -> AIOKafkaProducer:
        """Return the producer. One that replaces a failed producer aborts what that left open.

        It also gets a new epoch, so a late request of the failed one has no effect (R117).
        """
        if self._producer is None:
            producer = AIOKafkaProducer(**self._kafka, transactional_id=self._id)
            end_once(producer)
            try:
                await producer.start()
            except BaseException:
                await stop(producer)
                raise
            self._producer = producer
        return self._producer

    async def _abort(self, producer: AIOKafkaProducer) -> None:
        try:
            await producer.abort_transaction()
        except Exception:
            await self._drop(producer)  # the next producer aborts the transaction

    async def _drop(self, producer: AIOKafkaProducer) -> None:
        self._producer = None
        await stop(producer)


async def _send(
    producer: AIOKafkaProducer, records: Sequence[OutgoingRecord]
) -> list[RecordMetadata]:
    written = [
        await producer.send(
            each.topic,
            each.value,
            key=each.key,
            headers=list(each.headers),
            partition=each.partition,
        )
        for each in records
    ]
    stored = await asyncio.gather(*written, return_exceptions=True)
    for each in stored:
        if isinstance(each, BaseException):
            raise each
    return stored
