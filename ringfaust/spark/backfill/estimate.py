"""Estimate what the rings do with the records: replay each queue in memory through the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from ringfaust.config import QueuesConfig
from ringfaust.core.engine import Engine
from ringfaust.core.state import State
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import Payload
from ringfaust.protocol.routes import read_send
from ringfaust.protocol.stored_rows import encode_writes
from ringfaust.spark.backfill.check import as_record

_COLUMNS = ("queue", "key", "value", "headers", "timestamp_ms")
_ESTIMATED = (
    "queue string, records long, bytes long, ring_size long, evicted long, expired long, "
    "ready long, scheduled long, delivering long"
)
_CACHE_BYTES = 64 << 20
_COMMIT_RECORDS = 1_000
_NOTHING = Payload(None, None, (), "")


class QueueEstimate(NamedTuple):
    """What a queue that is empty and has no consumers would do with its records."""

    queue: str
    records: int
    bytes: int
    ring_size: int
    evicted: int
    expired: int
    ready: int
    scheduled: int
    delivering: int
    """Dispatched to a managed window (R12)."""


def estimate(good: DataFrame, queues: QueuesConfig, now_ms: int) -> list[QueueEstimate]:
    """Replay the records of each queue in the order in which they would be written.

    Args:
        good: columns of `CHECKED`; only rows without a fault.
        queues: the settings.
        now_ms: the time of all sends. Time does not advance, so a message expires or becomes due
            only if it already is at this time.

    Returns:
        One entry per queue, sorted by name.
    """
    ordered = (
        good.select(*_COLUMNS)
        .repartition("queue")
        .sortWithinPartitions("queue", "timestamp_ms", "key", "value", "headers")
    )
    found = ordered.mapInArrow(_EstimateTask(queues, now_ms).batches, _ESTIMATED)
    return sorted(QueueEstimate(*row) for row in found.collect())


@dataclass(frozen=True, slots=True)
class _EstimateTask:
    """Replays records in a task; it is sent to the executors."""

    queues: QueuesConfig
    now_ms: int

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Records sorted by queue → one row per queue; a function for mapInArrow."""
        ring: _Ring | None = None
        found: list[QueueEstimate] = []
        for batch in batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if ring is None or ring.queue != row[0]:
                    if ring is not None:
                        found.append(ring.result())
                    ring = _Ring(self, row[0])
                ring.take(*row[1:4])
        if ring is not None:
            found.append(ring.result())
        names = QueueEstimate._fields
        columns: Iterable[Any] = zip(*found, strict=True) if found else [()] * len(names)
        kinds = [pa.string(), *[pa.int64()] * (len(names) - 1)]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names)


class _Ring:
    """One queue, in a partition of its own."""

    def __init__(self, task: _EstimateTask, queue: str) -> None:
        self.queue = queue
        self._now_ms = task.now_ms
        self._durable = MemoryKeyValue()
        self._state = State(ByteStore(self._durable), task.queues.catalog())
        self._engine = Engine(self._state)
        self._records = self._bytes = 0

    def take(self, key: bytes | None, value: bytes | None, pairs: list[Any] | None) -> None:
        """Send one record."""
        record = as_record("", self._now_ms, key, value, pairs)
        self._records += 1
        send = read_send(record, self.queue, f"-/0/{self._records}", self._now_ms)
        self._bytes += send.size_bytes
        self._engine.step(send._replace(payload=_NOTHING), self._now_ms)
        if self._records % _COMMIT_RECORDS == 0:
            self._commit()

    def _commit(self) -> None:
        self._durable.apply(encode_writes(self._state.writes()))
        self._state.committed(_CACHE_BYTES)

    def result(self) -> QueueEstimate:
        """The counts after all records."""
        self._commit()
        queue = self._state.queue(self.queue)
        assert queue is not None
        counts = queue.counts
        return QueueEstimate(
            queue=self.queue,
            records=self._records,
            bytes=self._bytes,
            ring_size=queue.spec.ring_size,
            evicted=counts.evicted,
            expired=counts.expired,
            ready=counts.ready,
            scheduled=counts.scheduled,
            delivering=counts.delivering,
        )
