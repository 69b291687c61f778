"""Writes records in Kafka transactions, for local transactions (R80)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from ringfaust.client.brokers import CLOSE_TIMEOUT_S, Brokers, Writer, stop
from ringfaust.client.errors import Closed, OutcomeUnknown
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
        self._closes = 0
        self._is_unsettled = False
        """Whether a failed writer may have left a transaction open, for whose end readers wait."""
        self.may_be_committed = False
        """Whether the last list that was not written as far as is known may take effect."""

    async def write(self, records: Sequence[OutgoingRecord]) -> list[RecordMetadata]:
        """Write all records or none, and return their positions.

        Raises:
            OutcomeUnknown: the brokers failed during the commit, which is not tried again (R117).
            KafkaError: the brokers failed before the commit; nothing takes effect.
            Closed: it was closed before it began.
        """
        closes = self._closes
        self.may_be_committed = False
        async with self._lock:
            self._check(closes)
            writer = await self._opened()
            try:
                self._check(closes)
                return await writer.commit(partial(writer.send, records))
            except BaseException as error:
                may_be_committed, self._is_unsettled = writer.may_be_committed, True
                try:
                    await (self._drop(writer) if may_be_committed else self._abort(writer))
                finally:
                    self.may_be_committed = may_be_committed  # another call has begun meanwhile
                if may_be_committed and isinstance(error, KafkaError):
                    raise OutcomeUnknown(
                        f"the brokers failed while a transaction of {len(records)} records was "
                        f"committed ({error!r}): either all of them took effect or none"
                    ) from error
                raise

    async def close(self) -> None:
        """Disconnect, once what has begun is written, or the brokers stay away."""
        self._closes += 1
        with suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.settle()
        if self._writer is not None:
            await self._drop(self._writer)

    async def settle(self) -> None:
        """End what a failed writer has left open. Otherwise its timeout does, a minute later.

        Raises:
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        async with self._lock:
            if self._is_unsettled:
                await self._opened()

    def _check(self, closes: int) -> None:
        if self._closes != closes:
            raise Closed("the client was closed before the transaction began; nothing takes effect")

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
            self._writer, self._is_unsettled = writer, False
        return self._writer

    async def _abort(self, writer: Writer) -> None:
        """Abort, for which readers would wait. If this fails, the next writer does it.

        Brokers refuse what this writer would send after a record that they have refused.
        """
        try:
            with suppress(Exception):
                await writer.abort()
                self._is_unsettled = False
        finally:
            await self._drop(writer)

    async def _drop(self, writer: Writer) -> None:
        self._writer = None
        await stop(writer)
