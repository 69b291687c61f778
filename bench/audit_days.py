"""`make bench-audit`: audit the days of a lake one by one; the last costs as much as the first.

The lake's bronze table is written directly, as if Kafka had dropped everything: the rings are full,
each message is added and evicts the oldest one. Measured for each day: the time, and the bytes that
Spark's tasks read, which include what the audit itself keeps on disk between its steps.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core import effects as e
from ringfaust.core.model import EvictReason, Message, plain_position
from ringfaust.protocol import events
from ringfaust.protocol.outputs import evicted_record
from ringfaust.protocol.records import Payload, Role
from ringfaust.spark.audit import period
from ringfaust.spark.audit.offsets import TopicOffsets
from ringfaust.spark.audit.period import end_of, start_of
from ringfaust.spark.audit.rounds import LakeDays
from ringfaust.spark.audit.sources import AuditRequest
from ringfaust.spark.lake.stream import lake_session
from ringfaust.spark.lake.tables import BRONZE, path
from ringfaust.spark.session import open_session

DAYS = 10
MESSAGES = 1_000_000
"""A day."""
WARM_DAYS, WARM_MESSAGES = 2, 4_000
PARTITIONS = 4
QUEUES = 16
"""In each partition."""
RING = 64
"""With `MESSAGES` a day; in proportion with fewer, so that what is open stays 0.4 % of a day."""
GOAL = 1.2
"""The last day at most, of the first."""
FIRST = date(2026, 1, 1)
INPUT = "orders"
_BATCH = 200
"""Messages of one events record."""
_WORKER = WorkerConfig(application="bench", partitions=PARTITIONS)
_CONFIG = QueuesConfig.model_validate(
    {"routes": [{"topic": INPUT, "queue": "orders.{key}"}], "queues": {"orders.*": {}}}
)
_Row = tuple[str, int, int, int, bytes | None, bytes | None, list[tuple[str, bytes]]]


class _Rings:
    """Full rings of one partition, from the messages of a day.

    Args:
        partition: its number.
        number: the day, counted from 0.
        messages: how many the partition has a day.
    """

    def __init__(self, partition: int, number: int, messages: int) -> None:
        self._partition = partition
        self._messages = messages
        self._ring = max(1, RING * PARTITIONS * messages // MESSAGES)
        self._first = number * messages
        self._rings: list[deque[Message]] = [deque() for _ in range(QUEUES)]
        for before in range(max(0, self._first - QUEUES * self._ring), self._first):
            self._rings[before % QUEUES].append(self._message(before))

    def rows(self) -> Iterator[_Row]:
        """The records of all topics: topic, partition, offset, time in ms, key, value, headers."""
        for begin in range(self._first, self._first + self._messages, _BATCH):
            lines: list[str] = []
            for number in range(begin, min(begin + _BATCH, self._first + self._messages)):
                yield from self._step(number, lines)
            (text,) = events.record_texts(lines)
            at_ms = self._time_ms(number)
            yield (
                _WORKER.topic(Role.EVENTS), self._partition, begin // _BATCH, at_ms, None,
                text.encode(), [],
            )  # fmt: skip

    def _step(self, number: int, lines: list[str]) -> Iterator[_Row]:
        message = self._message(number)
        queue, now_ms = f"orders.{self._key(number)}", message.enqueued_ms
        payload: Payload = message.payload
        yield INPUT, self._partition, number, now_ms, payload.key, payload.value, []
        ring, tail = self._rings[number % QUEUES], events.event_tail(now_ms, message.id)
        ring.append(message)
        lines.append(events.WRITERS[e.Added](e.Added(queue, message), number + 1) + tail)
        if len(ring) > self._ring:
            evicted = e.Evicted(
                queue, ring.popleft(), EvictReason.OVERFLOW, message.id, self._ring, self._ring,
                now_ms, "full",
            )  # fmt: skip
            lines.append(events.WRITERS[e.Evicted](evicted, number + 1) + tail)
            key, value, headers = evicted_record(evicted)
            topic, offset = _WORKER.topic(Role.EVICTED), number - QUEUES * self._ring
            yield topic, self._partition, offset, now_ms, key, value, list(headers)

    def _message(self, number: int) -> Message:
        source, sequence = f"{INPUT}/{self._partition}/{number}", number // QUEUES + 1
        payload = Payload(self._key(number).encode(), b"%0100d" % number, (), source)
        return Message(
            source, sequence, plain_position(sequence), 4, self._time_ms(number), 0, 0, "", 0, 0,
            (), 200, payload,
        )  # fmt: skip

    def _key(self, number: int) -> str:
        return f"{self._partition}-{number % QUEUES}"

    def _time_ms(self, number: int) -> int:
        day, within = divmod(number, self._messages)
        return start_of(FIRST + timedelta(day)) + within * 86_000_000 // self._messages


def _write(spark: SparkSession, lake: str, days: int, messages: int) -> TopicOffsets:
    """Write the days, each in a commit; the offsets of topics that Kafka has emptied."""
    lake_session(spark, lake, _WORKER)
    each = messages // PARTITIONS
    for number in range(days):

        def make(batches: Iterable[pa.RecordBatch], number: int = number) -> Any:
            schema = pa.schema(
                [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
                 ("ms", pa.int64()), ("key", pa.binary()), ("value", pa.binary()),
                 ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))]
            )  # fmt: skip
            for batch in batches:
                for partition in batch.column(0).to_pylist():
                    yield from _arrow(_Rings(partition, number, each).rows(), schema)

        found = spark.range(0, PARTITIONS, 1, PARTITIONS).mapInArrow(
            make,
            "topic string, partition int, offset long, ms long, key binary, value binary, "
            "headers array<struct<key: string, value: binary>>",
        )
        found = found.selectExpr(
            "topic", "partition", "offset", "timestamp_millis(ms) timestamp", "0 timestamp_type",
            "key", "value", "headers", f"{number}L batch", "to_date(timestamp_millis(ms)) date",
        )  # fmt: skip
        found.write.format("delta").mode("append").save(path(lake, "bronze"))
    ends = {INPUT: each * days}
    topics = [INPUT, *(_WORKER.topic(role) for role in (Role.CONTROL, Role.HOP))]
    return {(t, p): (ends.get(t, 0), ends.get(t, 0)) for t in topics for p in range(PARTITIONS)}


def _arrow(rows: Iterator[_Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    chunk: list[_Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == 20_000:
            yield _batch(chunk, schema)
            chunk = []
    if chunk:
        yield _batch(chunk, schema)


def _batch(rows: list[_Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    *plain, headers = (list(column) for column in columns)
    structs = [[{"key": name, "value": value} for name, value in pairs] for pairs in headers]
    arrays = [pa.array(values, field.type) for values, field in zip(plain, schema, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(structs, schema[-1].type)], schema=schema)


def _input_bytes(spark: SparkSession) -> int:
    """The bytes that all tasks have read so far."""
    scala: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001
    scala.listenerBus().waitUntilEmpty()
    return int(scala.statusStore().executorSummary("driver").totalInputBytes())


def _audit(spark: SparkSession, lake: str, offsets: TopicOffsets) -> list[tuple[str, int, float]]:
    """Close all days; day, bytes and seconds of each."""
    days = LakeDays(spark, AuditRequest(_WORKER, _CONFIG, lake=lake), offsets)
    found = []
    read, began = _input_bytes(spark), time.perf_counter()
    for each in days.close(days.open_days(None, end_of(FIRST + timedelta(DAYS - 1))), None):
        if not each.verdict.balanced:
            raise SystemExit(f"{each.day} does not balance: {each.verdict.kinds}")
        now = _input_bytes(spark)
        found.append((str(each.day), now - read, time.perf_counter() - began))
        print(f"{each.day} {each.verdict.lines:,} events, {now - read:,} bytes, "
              f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
        read, began = now, time.perf_counter()
    return found


def main() -> None:
    """Run the benchmark. An argument is the number of messages a day."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    spark = open_session("bench audit", "local[2]")
    empty = spark.createDataFrame([], BRONZE.schema)
    with (
        tempfile.TemporaryDirectory(prefix="ringfaust-bench-") as folder,
        patch.object(period, "read_topics", lambda *_: empty),
    ):
        warm, lake = f"{folder}/warm", f"{folder}/lake"
        _audit(spark, warm, _write(spark, warm, WARM_DAYS, WARM_MESSAGES))
        found = _audit(spark, lake, _write(spark, lake, DAYS, messages))
    spark.stop()
    table = Table("day", "bytes read", "of the first", "seconds", "of the first")
    _, first_bytes, first_s = found[0]
    for day, read, seconds in found:
        table.add_row(
            day, f"{read:,}", f"{read / first_bytes:.2f}", f"{seconds:.1f}",
            f"{seconds / first_s:.2f}",
        )  # fmt: skip
    Console().print(table)
    _, last_bytes, last_s = found[-1]
    sys.exit(last_bytes > GOAL * first_bytes or last_s > GOAL * first_s)


if __name__ == "__main__":
    main()
