"""Estimate what the rings do with the records: replay each queue in memory through the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
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
from ringfaust.spark.backfill.write import ORDER
from ringfaust.spark.frames import make_batch, read_rows
from ringfaust.spark.vendor import from_arrow_schema

_COLUMNS = ("queue", "key", "value", "headers", "timestamp_ms")
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


_KINDS = dict.fromkeys(QueueEstimate._fields, pa.int64()) | {"queue": pa.string()}
_ESTIMATED = pa.schema(_KINDS)


def estimate(good: DataFrame, queues: QueuesConfig, now_ms: int) -> list[QueueEstimate]:
    """Replay the records of each queue in the order in which they would be written.

    They have no fault, and all are sent at `now_ms`. Time does not advance, so a message expires or
    becomes due only if it already is at this time. The queues are sorted by name.
    """
    ordered = good.select(*_COLUMNS).repartition("queue").sortWithinPartitions("queue", *ORDER)
    replay = partial(_replay, queues, now_ms)
    found = ordered.mapInArrow(replay, from_arrow_schema(_ESTIMATED))
    return sorted(QueueEstimate(*row) for row in found.collect())


def _replay(
    queues: QueuesConfig, now_ms: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Records sorted by queue → one row per queue; with the rest, a function for mapInArrow."""
    by_queue = groupby(read_rows(batches), itemgetter(0))
    found = [_estimate(name, rows, queues, now_ms) for name, rows in by_queue]
    yield make_batch(found, _ESTIMATED)


def _estimate(
    name: str, rows: Iterable[tuple[Any, ...]], queues: QueuesConfig, now_ms: int
) -> QueueEstimate:
    """Send the records of a queue, which is in a partition of its own."""
    durable = MemoryKeyValue()
    state = State(ByteStore(durable), queues.catalog())
    engine = Engine(state)
    records = size_bytes = 0
    for records, (_, key, value, pairs, _) in enumerate(rows, 1):
        record = as_record("", now_ms, key, value, pairs)
        send = read_send(record, name, f"-/0/{records}", now_ms)
        size_bytes += send.size_bytes
        engine.step(send._replace(payload=_NOTHING), now_ms)
        if records % _COMMIT_RECORDS == 0:
            durable.apply(encode_writes(state.writes()))
            state.committed(_CACHE_BYTES)
    queue = state.queue(name)
    assert queue is not None
    counts = (getattr(queue.counts, each) for each in QueueEstimate._fields[4:])
    return QueueEstimate(name, records, size_bytes, queue.spec.ring_size, *counts)
