"""Write rows exactly once: a transaction holds some rows of a slice and how far that has come.

A slice is written by one producer at a time. Its transactional id is the slice's own, so a task
that is run again, or twice at once, or that outlived its driver, fences the one before; it then
reads how far that came, and goes on there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    IllegalOperation,
    IllegalStateError,
    InvalidProducerEpoch,
    ProducerFenced,
)
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import OffsetAndMetadata
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.spark.backfill.check import read_headers
from ringfaust.spark.backfill.errors import SourceChanged, TakenOver
from ringfaust.spark.backfill.progress import Job, read_marks


class Row(NamedTuple):
    """What a task writes, in the order it comes; positions of a slice only grow."""

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
"""A transaction that begins just after another finds the coordinator busy with it."""
_STAND_BY_SECONDS = 30.0
_SALTS_TRIED = 64

Packed = dict[tuple[str, int], list[BatchBuilder]]


class Told(NamedTuple):
    """What a task did with a slice."""

    slice: int
    written: int
    """Rows that were not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What a task needs to know; it travels to the executors, and holds no secret."""

    worker: WorkerConfig
    job: Job
    ends: Mapping[int, int]
    """The last position of each slice, as it was counted."""
    batch_bytes: int
    rate: float | None
    """Records a second of one task."""

    @property
    def transaction_records(self) -> int:
        """Most records in one transaction: with a rate limit, about half a second's."""
        if self.rate is None:
            return _TRANSACTION_RECORDS
        return max(1, min(_TRANSACTION_RECORDS, int(self.rate / 2)))

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For mapInArrow: write what comes; a row for each slice tells what became of it."""
        told: list[Told] = []
        with asyncio.Runner() as runner:
            pace = Pace(self.rate)
            writer: SliceWriter | None = None
            try:
                for batch in batches:
                    columns = (column.to_pylist() for column in batch.columns)
                    for row in map(Row._make, zip(*columns, strict=True)):
                        if writer is None or writer.part != row.slice:
                            if writer is not None:
                                told.append(writer.finish())
                            writer = SliceWriter(self, row.slice, pace, runner)
                        writer.take(row)
                if writer is not None:
                    told.append(writer.finish())
            finally:
                if writer is not None:
                    writer.close()
        slices = pa.array([each.slice for each in told], pa.int32())
        written = pa.array([each.written for each in told], pa.int64())
        yield pa.RecordBatch.from_arrays([slices, written], list(Told._fields))


@dataclass(slots=True)
class Pace:
    """Holds a task to its rate, counted from its first record."""

    rate: float | None
    started: float = field(default_factory=time.monotonic)
    sent: int = 0

    def wait_seconds(self, now: float) -> float:
        """How long to wait before more may be sent."""
        return 0.0 if self.rate is None else max(0.0, self.started + self.sent / self.rate - now)


class SliceWriter:
    """Writes one slice, from where it stopped."""

    def __init__(self, writing: Writing, part: int, pace: Pace, runner: asyncio.Runner) -> None:
        self.part = part
        self._writing = writing
        self._pace = pace
        self._runner = runner
        self._producer: AIOKafkaProducer | None = None
        self._is_fenced = False
        self._packed: Packed = {}
        self._count = self._bytes = 0
        self._written = 0
        self._position = self._last_packed = self._done = 0
        try:
            runner.run(self._open())
        except _FENCED:
            self._stand_by()

    async def _open(self) -> None:
        producer = AIOKafkaProducer(
            # Made here: a certificate does not travel.
            **self._writing.worker.client_options(),
            transactional_id=self._writing.job.transactional_id(self.part),
            acks="all",
            max_batch_size=self._writing.batch_bytes,
            max_request_size=2 * _BATCH_BYTES,
            retry_backoff_ms=_BETWEEN_TRANSACTIONS_MS,
        )
        self._producer = producer
        # Ends what an earlier producer of this id left open: only then is its progress final.
        await producer.start()
        marks = await read_marks(self._writing.worker, self._writing.job, [self.part])
        self._done = marks.get(self.part, 0)

    def take(self, row: Row) -> None:
        """Write one more, if it is not there yet."""
        self._position = row.position
        if row.position <= self._done or self._is_fenced:
            return
        if self._count >= self._writing.transaction_records or self._bytes >= _TRANSACTION_BYTES:
            if not self._flush(self._last_packed):
                return
        self._pack(row)
        self._count += 1
        self._bytes += len(row.key or b"") + len(row.value or b"")
        self._last_packed = row.position

    def _pack(self, row: Row) -> None:
        assert self._producer is not None
        record = {
            "timestamp": row.timestamp_ms,
            "key": row.key,
            "value": row.value,
            "headers": read_headers(row.headers),
        }
        builders = self._packed.setdefault((row.topic, row.partition), [])
        if not builders or builders[-1].append(**record) is None:
            builders.append(self._producer.create_batch())
            builders[-1].append(**record)

    def finish(self) -> Told:
        """Write what is left.

        Raises:
            SourceChanged: these were not the rows that were counted.
        """
        expected = self._writing.ends.get(self.part, 0)
        if self._position != expected:
            raise SourceChanged(self.part, self._position, expected)
        if self._count and not self._is_fenced:
            self._flush(self._last_packed)
        self.close()
        return Told(self.part, self._written)

    def close(self) -> None:
        """Disconnect; a transaction that is open then is never committed."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._runner.run(producer.stop())

    def _flush(self, position: int) -> bool:
        """Commit what is packed; False if another writes the slice now, and has done so."""
        time.sleep(self._pace.wait_seconds(time.monotonic()))
        packed, self._packed = self._packed, {}
        count, self._count, self._bytes = self._count, 0, 0
        try:
            self._runner.run(self._commit(packed, position))
        except _FENCED:
            self._stand_by()
            return False
        self._pace.sent += count
        self._written += count
        return True

    async def _commit(self, packed: Packed, position: int) -> None:
        producer, job = self._producer, self._writing.job
        assert producer is not None
        await producer.begin_transaction()
        sent = []
        for (topic, partition), builders in packed.items():
            for builder in builders:
                future = await producer.send_batch(builder, topic, partition=partition)
                # If the commit fails before it waits for this, nobody else asks how it ended.
                future.add_done_callback(lambda sent: sent.cancelled() or sent.exception())
                sent.append(future)
        await producer.send_offsets_to_transaction(
            {TopicPartition(job.marks_topic, self.part): OffsetAndMetadata(position, job.metadata)},
            job.group,
        )
        # aiokafka would commit a transaction one of whose batches was refused, without that batch.
        await asyncio.gather(*sent)
        await producer.commit_transaction()

    def _stand_by(self) -> None:
        """Somebody newer writes this slice: a second attempt of this task, or another run.

        To fail would make Spark start one more, which fences that one. So wait for it, and pass
        over the rows.

        Raises:
            TakenOver: it gets nowhere; perhaps it was killed.
        """
        self._is_fenced = True
        self.close()
        patience = max(_STAND_BY_SECONDS, 3 / self._writing.rate if self._writing.rate else 0)
        last, since = -1, time.monotonic()
        while last < self._writing.ends[self.part]:
            marks = self._runner.run(
                read_marks(self._writing.worker, self._writing.job, [self.part])
            )
            at = marks.get(self.part, 0)
            if at > last:
                last, since = at, time.monotonic()
            elif time.monotonic() - since > patience:
                raise TakenOver(self.part)
            else:
                time.sleep(1)


# Fenced between two calls, aiokafka says so by one of the last three.
_FENCED = (
    ProducerFenced, InvalidProducerEpoch, IllegalStateError, IllegalOperation, AssertionError,
)  # fmt: skip


def write_rows(rows: DataFrame, writing: Writing) -> list[Told]:
    """Write the rows, each slice in one task.

    Args:
        rows: columns of `Row`, partitioned by `by_lane`, each slice's in order.
        writing: how.
    """
    written = rows.select(*Row._fields).mapInArrow(writing.batches, WRITTEN)
    return [Told(*row) for row in written.collect()]


def by_lane(rows: DataFrame, lanes: int) -> DataFrame:
    """Spread the slices evenly over so many partitions: `slice` modulo `lanes`.

    Spark would spread them by a hash, by which two may meet while another partition stays empty.
    So each lane is given a number whose hash falls there.
    """
    spark = rows.sparkSession
    tried = spark.range(_SALTS_TRIED * lanes)
    lane = F.pmod(F.hash("id"), F.lit(lanes))
    salts: dict[int, int] = {
        row[0]: row[1] for row in tried.groupBy(lane).agg(F.min("id")).collect()
    }
    table = F.array(*(F.lit(salts[number]).cast("long") for number in range(lanes)))
    salted = rows.withColumn("lane", table[F.pmod("slice", F.lit(lanes))])
    return salted.repartition(lanes, "lane")
