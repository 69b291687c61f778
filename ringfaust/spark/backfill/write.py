"""Write rows exactly once: each transaction contains some rows of a slice and its progress.

Each slice has its own transactional id, so one writer at a time writes a slice (`exactly_once`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import OffsetAndMetadata
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.spark.backfill.check import read_headers
from ringfaust.spark.backfill.errors import SourceChanged
from ringfaust.spark.backfill.progress import Job
from ringfaust.spark.exactly_once import CommittedOffsets, ExactlyOnceWriter, Transaction


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
_STAND_BY_S = 30.0
_MAX_SALTS = 64


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
        self._tp = (task.job.progress_topic, part)
        self._rows: list[SliceRow] = []
        """The rows of the next transaction."""
        self._bytes = 0
        self._written = 0
        self._position = 0
        self._writer = ExactlyOnceWriter(
            task.worker.client_options(),  # here, because certificates are not sent to executors
            task.job.transactional_id(part),
            task.job.group,
            [self._tp],
            batch_bytes=task.batch_bytes,
            stand_by_s=max(_STAND_BY_S, 3 / task.rate if task.rate else 0),
        )
        runner.run(self._writer.open())

    def take(self, row: SliceRow) -> None:
        """Write one row, unless it is already written."""
        self._position = row.position
        if row.position <= self._done(self._writer.progress):
            return
        size = len(self._rows)
        if size >= self._task.transaction_records or self._bytes >= _TRANSACTION_BYTES:
            self._flush()
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
        self._flush()
        self.close()
        return SliceResult(self.part, self._written)

    def close(self) -> None:
        """Disconnect; an open transaction is never committed."""
        self._runner.run(self._writer.close())

    def _done(self, progress: CommittedOffsets) -> int:
        """The last position that is written."""
        return progress[self._tp].offset if self._tp in progress else 0

    def _flush(self) -> None:
        """Commit the rows."""
        time.sleep(self._rate_limit.wait_s(time.monotonic()))
        rows, self._rows, self._bytes = self._rows, [], 0
        self._runner.run(
            self._writer.commit(
                lambda progress: [row for row in rows if row.position > self._done(progress)],
                self._pack,
            )
        )
        if not self._writer.is_fenced:
            self._rate_limit.sent += len(rows)
            self._written += len(rows)

    def _pack(self, rows: Sequence[SliceRow]) -> Transaction:
        packed: dict[tuple[str, int], list[BatchBuilder]] = {}
        for row in rows:
            record = {
                "timestamp": row.timestamp_ms,
                "key": row.key,
                "value": row.value,
                "headers": read_headers(row.headers),
            }
            builders = packed.setdefault((row.topic, row.partition), [])
            if not builders or builders[-1].append(**record) is None:
                builders.append(self._writer.new_batch())
                builders[-1].append(**record)
        return Transaction(
            batches=[(*where, builder) for where, of in packed.items() for builder in of],
            offsets={self._tp: OffsetAndMetadata(rows[-1].position, self._task.job.metadata)},
        )


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
    # As a text, because an array of literals would be an expression for each task.
    text = F.lit(" ".join(str(salts[number]) for number in range(tasks)))
    table = F.split(text, " ").cast("array<long>")
    salted = rows.withColumn("salt", F.get(table, F.pmod("slice", F.lit(tasks))))
    return salted.repartition(tasks, "salt")
