"""Write rows exactly once: each transaction contains some rows of a slice and its progress.

One producer at a time writes a slice. Each slice has its own transactional id. So a task that Spark
runs again, or twice at once, or that outlives its driver, is fenced by the next one, which reads
the progress and resumes there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    IllegalOperation,
    IllegalStateError,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
)
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import OffsetAndMetadata
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.kafka.vendor import send_once, sender_bug
from ringfaust.spark.backfill.check import read_headers
from ringfaust.spark.backfill.errors import SourceChanged, TakenOver
from ringfaust.spark.backfill.progress import Job, read_progress

log = logging.getLogger(__name__)


class SliceRow(NamedTuple):
    """A row to write; rows of a slice come with increasing positions."""

    slice: int
    position: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]] | None
    timestamp_ms: int | None


WRITTEN = "slice int, written long"

_TRANSACTION_RECORDS = 20_000
_TRANSACTION_BYTES = 8_000_000
_BATCH_BYTES = 1_000_000
_BETWEEN_TRANSACTIONS_MS = 5
"""The coordinator is still busy with the previous transaction when the next one begins."""
_STAND_BY_S = 30.0
_ATTEMPTS = 3
"""How often a transaction is tried when its outcome is unknown, before the task fails."""
_MAX_SALTS = 64

Packed = dict[tuple[str, int], list[BatchBuilder]]


class SliceResult(NamedTuple):
    """What a task wrote of a slice."""

    slice: int
    written: int
    """Number of rows that this task wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Writes rows in a task; it is sent to the executors and contains no secret."""

    worker: WorkerConfig
    job: Job
    ends: Mapping[int, int]
    """The last position of each slice, as counted before."""
    batch_bytes: int
    """Size of the largest record batch."""
    rate: float | None
    """Records per second of one task; None: unlimited."""

    @property
    def transaction_records(self) -> int:
        """Maximum number of records per transaction: half a second's worth with a rate limit."""
        if self.rate is None:
            return _TRANSACTION_RECORDS
        return max(1, min(_TRANSACTION_RECORDS, int(self.rate / 2)))

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows and return one row per slice; a function for mapInArrow."""
        results: list[SliceResult] = []
        with asyncio.Runner() as runner:
            rate_limit = RateLimit(self.rate)
            writer: SliceWriter | None = None
            try:
                for batch in batches:
                    columns = (column.to_pylist() for column in batch.columns)
                    for row in map(SliceRow._make, zip(*columns, strict=True)):
                        if writer is None or writer.part != row.slice:
                            if writer is not None:
                                results.append(writer.finish())
                            writer = SliceWriter(self, row.slice, rate_limit, runner)
                        writer.take(row)
                if writer is not None:
                    results.append(writer.finish())
            finally:
                if writer is not None:
                    writer.close()
        slices = pa.array([each.slice for each in results], pa.int32())
        written = pa.array([each.written for each in results], pa.int64())
        yield pa.RecordBatch.from_arrays([slices, written], list(SliceResult._fields))


@dataclass(slots=True)
class RateLimit:
    """Limits the rate of a task, counted from its first record."""

    rate: float | None
    started: float = field(default_factory=time.monotonic)
    sent: int = 0

    def wait_s(self, now: float) -> float:
        """Seconds to wait before more records may be sent."""
        return 0.0 if self.rate is None else max(0.0, self.started + self.sent / self.rate - now)


class SliceWriter:
    """Writes one slice, from its last position on."""

    def __init__(
        self, task: WriteTask, part: int, rate_limit: RateLimit, runner: asyncio.Runner
    ) -> None:
        self.part = part
        self._task = task
        self._rate_limit = rate_limit
        self._runner = runner
        self._producer: AIOKafkaProducer | None = None
        self._is_fenced = False
        self._rows: list[SliceRow] = []
        """The rows of the next transaction."""
        self._bytes = 0
        self._written = 0
        self._position = self._done = 0
        try:
            runner.run(self._open())
        except _FENCED:
            self._stand_by()

    async def _open(self) -> None:
        producer = AIOKafkaProducer(
            # Created here, because certificates are not sent to executors.
            **self._task.worker.client_options(),
            transactional_id=self._task.job.transactional_id(self.part),
            acks="all",
            max_batch_size=self._task.batch_bytes,
            max_request_size=2 * _BATCH_BYTES,
            retry_backoff_ms=_BETWEEN_TRANSACTIONS_MS,
        )
        send_once(producer)
        self._producer = producer
        # Ends an open transaction of an earlier producer; only then is the progress final.
        await producer.start()
        progress = await read_progress(self._task.worker, self._task.job, [self.part])
        self._done = progress.get(self.part, 0)

    def take(self, row: SliceRow) -> None:
        """Write one row, unless it is already written."""
        self._position = row.position
        if row.position <= self._done or self._is_fenced:
            return
        size = len(self._rows)
        if size >= self._task.transaction_records or self._bytes >= _TRANSACTION_BYTES:
            if not self._flush():
                return
        self._rows.append(row)
        self._bytes += len(row.key or b"") + len(row.value or b"")

    def finish(self) -> SliceResult:
        """Write the remaining rows.

        Raises:
            SourceChanged: the rows are not those that were counted.
        """
        expected = self._task.ends.get(self.part, 0)
        if self._position != expected:
            raise SourceChanged(self.part, self._position, expected)
        if self._rows and not self._is_fenced:
            self._flush()
        self.close()
        return SliceResult(self.part, self._written)

    def close(self) -> None:
        """Disconnect; an open transaction is never committed."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._runner.run(producer.stop())

    def _flush(self) -> bool:
        """Commit the rows; False if a newer writer took over and finished the slice.

        If the outcome is unknown, a new producer settles the transaction and reads the progress,
        which says whether the rows are written (R117).
        """
        time.sleep(self._rate_limit.wait_s(time.monotonic()))
        rows, self._rows, self._bytes = self._rows, [], 0
        left = rows
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if left:
                    self._runner.run(self._commit(left))
                break
            except _FENCED:
                self._stand_by()
                return False
            except KafkaError as error:
                assert self._producer is not None
                if (bug := sender_bug(self._producer)) is not None:
                    raise bug from None
                if attempt == _ATTEMPTS:
                    raise
                log.warning("slice %d: a commit failed (%r); trying again", self.part, error)
                self.close()
                self._runner.run(self._open())
                left = [row for row in left if row.position > self._done]
        self._rate_limit.sent += len(rows)
        self._written += len(rows)
        return True

    def _pack(self, rows: Iterable[SliceRow]) -> Packed:
        assert self._producer is not None
        packed: Packed = {}
        for row in rows:
            record = {
                "timestamp": row.timestamp_ms,
                "key": row.key,
                "value": row.value,
                "headers": read_headers(row.headers),
            }
            builders = packed.setdefault((row.topic, row.partition), [])
            if not builders or builders[-1].append(**record) is None:
                builders.append(self._producer.create_batch())
                builders[-1].append(**record)
        return packed

    async def _commit(self, rows: Sequence[SliceRow]) -> None:
        producer, job = self._producer, self._task.job
        assert producer is not None
        packed, position = self._pack(rows), rows[-1].position
        await producer.begin_transaction()
        sent = []
        for (topic, partition), builders in packed.items():
            for builder in builders:
                future = await producer.send_batch(builder, topic, partition=partition)
                # Retrieve the exception even if the commit fails before it waits for this future.
                future.add_done_callback(lambda sent: sent.cancelled() or sent.exception())
                sent.append(future)
        await producer.send_offsets_to_transaction(
            {
                TopicPartition(job.progress_topic, self.part): OffsetAndMetadata(
                    position, job.metadata
                )
            },
            job.group,
        )
        # If a batch was rejected, aiokafka would still commit the transaction, without that batch.
        await asyncio.gather(*sent)
        await producer.commit_transaction()

    def _stand_by(self) -> None:
        """Wait for the newer writer of this slice: a second attempt of this task, or another run.

        If this task failed, Spark would start one more, which would fence the newer writer. So it
        waits and skips its own rows.

        Raises:
            TakenOver: the newer writer makes no progress; perhaps it was killed.
        """
        self._is_fenced = True
        self.close()
        timeout_s = max(_STAND_BY_S, 3 / self._task.rate if self._task.rate else 0)
        last, since = -1, time.monotonic()
        while last < self._task.ends[self.part]:
            progress = self._runner.run(
                read_progress(self._task.worker, self._task.job, [self.part])
            )
            at = progress.get(self.part, 0)
            if at > last:
                last, since = at, time.monotonic()
            elif time.monotonic() - since > timeout_s:
                raise TakenOver(self.part)
            else:
                time.sleep(1)


# If a producer is fenced between two calls, aiokafka raises one of the last three.
_FENCED = (
    ProducerFenced, InvalidProducerEpoch, IllegalStateError, IllegalOperation, AssertionError,
)  # fmt: skip


def write_rows(rows: DataFrame, task: WriteTask) -> list[SliceResult]:
    """Write the rows, each slice in one task.

    Args:
        rows: columns of `SliceRow`, partitioned by `spread_slices`, each slice in order.
        task: what to write, and how.
    """
    written = rows.select(*SliceRow._fields).mapInArrow(task.batches, WRITTEN)
    return [SliceResult(*row) for row in written.collect()]


def spread_slices(rows: DataFrame, tasks: int) -> DataFrame:
    """Spread the slices evenly over Spark partitions: partition = `slice` modulo `tasks`.

    Spark spreads rows by a hash, so that two slices might share a partition while another stays
    empty. This adds a column `salt` with a number whose hash selects the wanted partition.
    """
    spark = rows.sparkSession
    tried = spark.range(_MAX_SALTS * tasks)
    partition = F.pmod(F.hash("id"), F.lit(tasks))
    salts: dict[int, int] = {
        row[0]: row[1] for row in tried.groupBy(partition).agg(F.min("id")).collect()
    }
    table = F.array(*(F.lit(salts[number]).cast("long") for number in range(tasks)))
    salted = rows.withColumn("salt", table[F.pmod("slice", F.lit(tasks))])
    return salted.repartition(tasks, "salt")
