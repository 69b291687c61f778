"""Write rows exactly once: each transaction contains some rows of a slice and its progress.

Each slice has its own transactional id, so one writer at a time writes a slice (`exactly_once`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby, starmap
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import OffsetAndMetadata
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.kafka.names import slice_transactional_id
from ringfaust.spark.backfill.check import read_headers
from ringfaust.spark.backfill.errors import SourceChanged
from ringfaust.spark.backfill.job import Job
from ringfaust.spark.exactly_once import CommittedOffsets, ExactlyOnceWriter, Transaction
from ringfaust.spark.frames import make_batch, read_rows, shuffle_key_of, shuffle_keys
from ringfaust.spark.vendor import from_arrow_schema

ORDER = ("timestamp_ms", "key", "value", "headers")
"""Order of the rows within a slice. Rows equal in all of these make equal records, so their order
does not matter."""
_TRANSACTION_RECORDS = 20_000
_TRANSACTION_BYTES = 8_000_000
_STAND_BY_S = 30.0
_WRITTEN = pa.schema({"written": pa.int64()})


class NumberedRow(NamedTuple):
    """A row to write, with its number in its slice: a partition of the topic."""

    partition: int
    position: int
    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]] | None
    timestamp_ms: int | None


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
        """Write the rows and return the number of those written; a function for mapInArrow.

        Rows of a slice come with increasing positions.
        """
        written = 0
        rows = starmap(NumberedRow, read_rows(batches))
        with asyncio.Runner() as runner:
            rate_limit = RateLimit(self.rate)
            for part, of in groupby(rows, attrgetter("partition")):
                with closing(SliceWriter(self, part, rate_limit, runner)) as writer:
                    written += writer.write(of)
        yield make_batch([(written,)], _WRITTEN)


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
        self._part = part
        self._task = task
        self._rate_limit = rate_limit
        self._runner = runner
        self._tp = (task.job.topic, part)
        self._rows: list[NumberedRow] = []
        """The rows of the next transaction."""
        self._bytes = 0
        self._written = 0
        self._writer = ExactlyOnceWriter(
            task.worker.client_options(),  # here, because certificates are not sent to executors
            slice_transactional_id(task.job.group, part),
            task.job.group,
            [self._tp],
            batch_bytes=task.batch_bytes,
            stand_by_s=max(_STAND_BY_S, 3 / task.rate if task.rate else 0),
        )
        runner.run(self._writer.open())

    def write(self, rows: Iterable[NumberedRow]) -> int:
        """Write all rows of the slice that are not written yet. Returns how many this task wrote.

        Raises:
            SourceChanged: the rows are not those that were counted.
        """
        position = 0
        for row in rows:
            position = row.position
            if position > self._done(self._writer.progress):
                self._take(row)
        expected = self._task.ends.get(self._part, 0)
        if position != expected:
            raise SourceChanged(self._part, position, expected)
        self._flush()
        return self._written

    def _take(self, row: NumberedRow) -> None:
        size = len(self._rows)
        if size >= self._task.transaction_records or self._bytes >= _TRANSACTION_BYTES:
            self._flush()
        self._rows.append(row)
        self._bytes += len(row.key or b"") + len(row.value or b"")

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

    def _pack(self, rows: Sequence[NumberedRow]) -> Transaction:
        builders: list[BatchBuilder] = []
        for row in rows:
            record = {
                "timestamp": row.timestamp_ms,
                "key": row.key,
                "value": row.value,
                "headers": read_headers(row.headers),
            }
            if not builders or builders[-1].append(**record) is None:
                builders.append(self._writer.new_batch())
                builders[-1].append(**record)
        return Transaction(
            batches=[(*self._tp, builder) for builder in builders],
            offsets={self._tp: OffsetAndMetadata(rows[-1].position, self._task.job.metadata)},
        )


def write_rows(rows: DataFrame, task: WriteTask) -> int:
    """Write the rows, each slice in one task. Returns how many were written.

    They are partitioned by `spread_slices`, each slice in order.
    """
    numbered = rows.select(*NumberedRow._fields)
    written = numbered.mapInArrow(task.batches, from_arrow_schema(_WRITTEN))
    return sum(row[0] for row in written.collect())


def spread_slices(rows: DataFrame, tasks: int) -> DataFrame:
    """Spread the slices evenly over Spark partitions: the topic's partition modulo `tasks`.

    The column `position` numbers the rows of each slice from 1, in their order.
    """
    keys = shuffle_keys(rows.sparkSession, tasks, tasks)
    salted = rows.withColumn("salt", shuffle_key_of(keys, F.pmod("partition", F.lit(tasks))))
    order = Window.partitionBy("salt", "partition").orderBy(*ORDER)
    numbered = F.row_number().over(order).cast("long")
    return salted.repartition(tasks, "salt").withColumn("position", numbered)
