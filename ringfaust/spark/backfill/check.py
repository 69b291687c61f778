"""Check records before they are written, with the code that a worker decodes them with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from ringfaust.config import QueuesConfig
from ringfaust.errors import ProtocolError
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import FetchedRecord, Headers
from ringfaust.protocol.routes import RouteTemplate, check_name, read_send
from ringfaust.protocol.undecodable import refuse_oversized
from ringfaust.spark.arrow import make_batch, read_rows
from ringfaust.spark.backfill.target import Target

MAPPED = (
    "slice int, position long, topic string, partition int, key binary, value binary, "
    "headers array<struct<name:string,value:binary>>, timestamp_ms long, what string, fault string"
)
"""Columns of mapped rows. If `slice` and `partition` are -1, the key chooses the partition, and the
slice is the partition. `what` and `fault`: kind and description of a fault; null without one."""
CHECKED = f"{MAPPED}, queue string"
"""Columns of checked rows."""

_CREATE_TIME = 0
_CACHED_KEYS = 100_000


class _MappedRow(NamedTuple):
    """A row of `MAPPED`."""

    slice: int
    position: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]] | None
    timestamp_ms: int | None
    what: str | None
    fault: str | None


class _CheckedRow(NamedTuple):
    """The result for one row."""

    slice: int
    partition: int
    what: str | None
    fault: str | None
    queue: str | None = None


_KINDS = (pa.int32(), pa.int32(), pa.string(), pa.string(), pa.string())
_CHECKED = pa.schema(zip(_CheckedRow._fields, _KINDS, strict=True))


def check_rows(
    mapped: DataFrame, targets: Mapping[str, Target], queues: QueuesConfig, now_ms: int
) -> DataFrame:
    """Find the queue, the partition and any fault of each row.

    `now_ms` is the time at which relative times in headers are read.

    Returns:
        Columns of `CHECKED`.
    """
    checker = RowChecker(targets, queues, now_ms)
    return mapped.select(*_MappedRow._fields).mapInArrow(checker.batches, CHECKED)


def as_record(
    topic: str,
    now_ms: int,
    key: bytes | None,
    value: bytes | None,
    pairs: list[dict[str, Any]] | None,
) -> FetchedRecord:
    """A row as the record that a worker would read at that time."""
    return FetchedRecord(topic, 0, 0, now_ms, _CREATE_TIME, key, value, read_headers(pairs))


def read_headers(pairs: list[dict[str, Any]] | None) -> Headers:
    """Convert an array of structs to the headers of a Kafka client."""
    return [(pair["name"], pair["value"]) for pair in pairs or ()]


@lru_cache(_CACHED_KEYS)
def choose_partition(key: bytes, partitions: int) -> int:
    """The partition that Kafka's own clients choose for a key, remembered: keys recur."""
    return partition_of(key, partitions)


@dataclass(frozen=True, slots=True)
class RowChecker:
    """Checks rows in a task; it is sent to the executors."""

    targets: Mapping[str, Target]
    queues: QueuesConfig
    now_ms: int

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Check batches of `MAPPED` rows; a function for mapInArrow."""
        catalog = self.queues.catalog()

        @lru_cache(_CACHED_KEYS)
        def declares(name: str) -> bool:
            return catalog.declares(name) or catalog.address(name, {}) is not None

        namers = {
            name: RouteTemplate(target.queue).queue_of for name, target in self.targets.items()
        }
        for batch in batches:
            rows = map(_MappedRow._make, read_rows([batch]))
            checked = make_batch([self._check(namers, declares, row) for row in rows], _CHECKED)
            columns = _by_name(batch) | _by_name(checked)
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _check(
        self,
        namers: Mapping[str, Callable[[FetchedRecord], str]],
        declares: Callable[[str], bool],
        row: _MappedRow,
    ) -> _CheckedRow:
        target = self.targets[row.topic]
        partition = row.partition
        if partition < 0:
            # Without a key any partition will do, as long as it is the same in every run.
            if row.key is None:
                partition = partition_of(row.value or b"", target.partitions)
            else:
                partition = choose_partition(row.key, target.partitions)
        where = partition if row.slice < 0 else row.slice, partition
        if row.fault is not None:
            return _CheckedRow(*where, row.what, row.fault)
        time_ms = row.timestamp_ms
        if time_ms is not None and not target.earliest_ms <= time_ms <= target.latest_ms:
            return _CheckedRow(
                *where,
                "timestamp",
                f"{time_ms} ms since 1970: {row.topic} accepts times from {target.earliest_ms} to "
                f"{target.latest_ms} (its message.timestamp.before.max.ms and after.max.ms)",
            )
        record = as_record(row.topic, self.now_ms, row.key, row.value, row.headers)
        what = "queue"
        try:
            queue = namers[row.topic](record)
            check_name(queue)
            if not declares(queue):
                raise ProtocolError(
                    f"no queue or address {queue[:80]!r} is declared in queues.yaml"
                )
            what = "size"
            refuse_oversized(record, target.max_record_bytes)
            what = "header"
            read_send(record, queue, "", self.now_ms)
        except ProtocolError as error:
            return _CheckedRow(*where, what, str(error))
        return _CheckedRow(*where, None, None, queue)


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))
