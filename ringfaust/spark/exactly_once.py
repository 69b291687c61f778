"""Exactly-once output of Spark tasks: a transaction contains records and how far they have come.

Spark may run a task again, run it twice at once, or let one outlive its driver. Each task of a job
has one transactional id, so the newest writer fences the one before, reads the progress that was
committed last, and leaves out what is already written. Rows must be the same whenever a task runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import (
    IllegalOperation,
    IllegalStateError,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
)
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import OffsetAndMetadata

from ringfaust.errors import RingfaustError
from ringfaust.kafka.offsets import CommittedOffset, group_offsets
from ringfaust.kafka.packed_batch import PackedBatch
from ringfaust.kafka.transactions import BATCH_BYTES
from ringfaust.transactional.writer import TransactionalWriter

log = logging.getLogger(__name__)

Row = TypeVar("Row")
CommittedOffsets = Mapping[tuple[str, int], CommittedOffset]
"""Committed offsets by topic and partition; what they mean is up to the job."""

_BETWEEN_TRANSACTIONS_MS = 5
"""The coordinator is still busy with the previous transaction when the next one begins."""
_ATTEMPTS = 3
"""How often a transaction is tried when its outcome is unknown, before the task fails."""
_POLL_S = 1.0
# If a producer is fenced between two calls, aiokafka raises one of the last three.
_FENCED = (
    ProducerFenced, InvalidProducerEpoch, IllegalStateError, IllegalOperation, AssertionError,
)  # fmt: skip


class TakenOver(RingfaustError):
    """A newer writer has taken over, but makes no progress; run the job again."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"{transactional_id} was taken over by another run of this job, which makes no "
            "progress: make sure that only one runs, and run it again; it resumes where it stopped"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What is committed together."""

    batches: Sequence[tuple[str, int, BatchBuilder | PackedBatch]]
    """Record batches with their topic and partition."""
    offsets: Mapping[tuple[str, int], OffsetAndMetadata]
    """The progress after these records."""


class ExactlyOnceWriter:
    """The writer of a task. A task that has been fenced waits for the newer one.

    The offsets of `group`, a consumer group, for `tps` are the progress. A fenced writer waits
    `stand_by_s` for progress of the newer one.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        transactional_id: str,
        group: str,
        tps: Collection[tuple[str, int]],
        *,
        batch_bytes: int = BATCH_BYTES,
        stand_by_s: float = 30.0,
    ) -> None:
        self._client = client
        self._id = transactional_id
        self._group = group
        self._tps = tps
        self._batch_bytes = batch_bytes
        self._stand_by_s = stand_by_s
        self._writer: TransactionalWriter | None = None
        self.is_fenced = False
        """Whether a newer writer has taken over."""
        self.progress: CommittedOffsets = {}
        """As committed last, by this writer or an earlier one."""

    def new_batch(self) -> BatchBuilder:
        """An empty record batch."""
        assert self._writer is not None
        return self._writer.producer.create_batch()

    async def open(self) -> None:
        """Fence earlier writers and read the progress."""
        await self.fence()
        await self._read_progress()

    async def fence(self) -> None:
        """Fence earlier writers. An open transaction of theirs is ended."""
        self._writer = TransactionalWriter(
            self._client,
            self._id,
            compression_type="zstd",
            max_batch_size=self._batch_bytes,
            max_request_size=2 * max(BATCH_BYTES, self._batch_bytes),
            retry_backoff_ms=_BETWEEN_TRANSACTIONS_MS,
        )
        try:
            await self._writer.start()  # only after this is the progress final
        except _FENCED:
            await self._yield_to_newer()

    async def close(self) -> None:
        """Disconnect. An open transaction is never committed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()

    async def commit(
        self,
        missing: Callable[[CommittedOffsets], Sequence[Row]],
        pack: Callable[[Sequence[Row]], Transaction],
    ) -> None:
        """Write what is not written yet, exactly once.

        If the outcome of a transaction is unknown, a new producer settles it and reads the
        progress, which says whether the records are written (R117). If a newer writer has taken
        over, this waits until that one has written them: if this task failed, Spark would start
        another one, which would fence the newer writer.

        Args:
            missing: returns the rows that are not written according to the progress.
            pack: makes a transaction of them.

        Raises:
            TakenOver: the newer writer makes no progress; perhaps it was killed.
            KafkaError: the brokers failed.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            if self.is_fenced:
                break
            rows = missing(self.progress)
            if not rows:
                return
            transaction = pack(rows)
            try:
                await self._commit(transaction)
            except _FENCED:
                await self._yield_to_newer()
            except KafkaError as error:
                if attempt == _ATTEMPTS:
                    raise
                log.warning("%s: a commit failed (%r); trying again", self._id, error)
                await self.close()
                await self.open()
            else:
                self.progress = {**self.progress, **transaction.offsets}
                return
        await self._stand_by(missing)

    async def _commit(self, transaction: Transaction) -> None:
        assert self._writer is not None
        offsets = {TopicPartition(*tp): offset for tp, offset in transaction.offsets.items()}
        produce = partial(self._writer.send_batches, transaction.batches)
        await self._writer.commit(produce, offsets, self._group)

    async def _read_progress(self) -> None:
        self.progress = await group_offsets(self._client, self._group, self._tps)

    async def _yield_to_newer(self) -> None:
        self.is_fenced = True
        await self.close()

    async def _stand_by(self, missing: Callable[[CommittedOffsets], Sequence[Row]]) -> None:
        """Wait for the newer writer: a second attempt of this task, or another run."""
        since = time.monotonic()
        while True:
            before = self.progress
            await self._read_progress()
            if not missing(self.progress):
                return
            if self.progress != before:
                since = time.monotonic()
            elif time.monotonic() - since > self._stand_by_s:
                raise TakenOver(self._id)
            await asyncio.sleep(_POLL_S)
