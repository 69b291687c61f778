"""Writes records in Kafka transactions, for local transactions (R80)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from ringfaust.client.brokers import Brokers, Writer, stop
from ringfaust.client.errors import OutcomeUnknown
from ringfaust.protocol.records import OutgoingRecord


class ClientTransactions:
    """Writes lists of records, each list in one Kafka transaction.

    A list is written only at its commit. A read_committed reader, and so the worker, gets nothing
    that follows an open transaction, so a transaction must not stay open while its list grows.
    """

    def __init__(self, brokers: Brokers, transactional_id: str) -> None:
        """Connect at the first write.

        Args:
            brokers: where to.
            transactional_id: an id that no other client uses.
        """
        self._brokers = brokers
        self._id = transactional_id
        self._writer: Writer | None = None
        self._lock = asyncio.Lock()
        self.may_be_committed = False
        """Whether the last list that was not written as far as is known may take effect."""

    async def write(self, records: Sequence[OutgoingRecord]) -> list[RecordMetadata]:
        """Write all records or none, and return their positions.

        Raises:
            OutcomeUnknown: the brokers failed during the commit, which is not tried again (R117).
            KafkaError: the brokers failed before the commit; nothing takes effect.
        """
        self.may_be_committed = False
        async with self._lock:
            writer = await self._opened()
            try:
                return await writer.commit(partial(writer.send, records))
            except BaseException as error:
                self.may_be_committed = writer.may_be_committed
                if not self.may_be_committed:
                    await self._abort(writer, error)
                    raise
                await self._drop(writer)
                if isinstance(error, KafkaError):
                    raise OutcomeUnknown(
                        f"the brokers failed while a transaction of {len(records)} records was "
                        f"committed ({error!r}): either all of them took effect or none"
                    ) from error
                raise

    async def close(self) -> None:
        """Disconnect."""
        if self._writer is not None:
            await self._drop(self._writer)

    async def _opened(self) -> Writer:
        """Return the writer. One that replaces a failed writer aborts what that left open.

        It also gets a new epoch, so a late request of the failed one has no effect (R117).
        """
        if self._writer is None:
            writer = self._brokers.writer(self._id)
            try:
                await writer.start()
            except BaseException:
                await stop(writer)
                raise
            self._writer = writer
        return self._writer

    async def _abort(self, writer: Writer, error: BaseException) -> None:
        with suppress(Exception):  # the next writer aborts the transaction
            await writer.abort()
            if not isinstance(error, KafkaError):
                return
        # Brokers would refuse what follows a record that they have refused: it has a number.
        await self._drop(writer)

    async def _drop(self, writer: Writer) -> None:
        self._writer = None
        await stop(writer)
