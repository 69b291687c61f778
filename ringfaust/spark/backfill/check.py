"""Check records before they are written, with the code that a worker decodes them with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import starmap
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ringfaust.config import QueuesConfig
from ringfaust.errors import ProtocolError
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import FetchedRecord, Headers
from ringfaust.protocol.routes import RouteTemplate, check_name, read_send, refuse_oversized
from ringfaust.spark.backfill.target import Target
from ringfaust.spark.frames import make_batch, read_rows

_CHECKED = pa.schema(
    {"partition": pa.int32()} | dict.fromkeys(("what", "fault", "queue"), pa.string())
)
"""What the check says of a row."""

_CREATE_TIME = 0
_CACHED_KEYS = 100_000


class Row(NamedTuple):
    """What is checked of a mapped row.

    If `partition` is -1, the key chooses it. `what` and `fault`: kind and description of a fault;
    null without one.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]] | None
    timestamp_ms: int | None
    what: str | None = None
    fault: str | None = None


def check_rows(
    mapped: DataFrame, targets: Mapping[str, Target], queues: QueuesConfig, now_ms: int
) -> DataFrame:
    """Find the queue, the partition and any fault of each row. Other columns stay as they are.

    The rows have the columns of a `Row`, and get `queue`. `now_ms` is the time at which relative
    times in headers are read.
    """
    check = partial(check_batches, targets, queues, now_ms)
    columns = [T.StructField(each.name, each.dataType) for each in mapped.schema]
    columns.append(T.StructField("queue", T.StringType()))
    return mapped.mapInArrow(check, T.StructType(columns))


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


choose_partition = lru_cache(_CACHED_KEYS)(partition_of)
"""The partition that Kafka's own clients choose for a key, remembered: keys recur."""


def check_batches(
    targets: Mapping[str, Target],
    queues: QueuesConfig,
    now_ms: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Check batches of mapped rows; with the rest, a function for mapInArrow."""
    catalog = queues.catalog()

    @lru_cache(_CACHED_KEYS)
    def declares(name: str) -> bool:
        return catalog.declares(name) or catalog.address(name, {}) is not None

    namers = {name: RouteTemplate(target.queue).queue_of for name, target in targets.items()}
    for batch in batches:
        found = [
            _check(row, targets[row.topic], namers[row.topic], declares, now_ms)
            for row in starmap(Row, read_rows([batch.select(list(Row._fields))]))
        ]
        columns = _by_name(batch) | _by_name(make_batch(found, _CHECKED))
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _check(
    row: Row,
    target: Target,
    queue_of: Callable[[FetchedRecord], str],
    declares: Callable[[str], bool],
    now_ms: int,
) -> tuple[int, str | None, str | None, str | None]:
    """The values of `_CHECKED` for a row."""
    partition = row.partition
    if partition < 0:
        # Without a key any partition will do, as long as it is the same in every run.
        if row.key is None:
            partition = partition_of(row.value or b"", target.partitions)
        else:
            partition = choose_partition(row.key, target.partitions)
    if row.fault is not None:
        return partition, row.what, row.fault, None
    time_ms = row.timestamp_ms
    if time_ms is not None and not target.earliest_ms <= time_ms <= target.latest_ms:
        fault = (
            f"{time_ms} ms since 1970: {row.topic} accepts times from {target.earliest_ms} to "
            f"{target.latest_ms} (its message.timestamp.before.max.ms and after.max.ms)"
        )
        return partition, "timestamp", fault, None
    record = as_record(row.topic, now_ms, row.key, row.value, row.headers)
    what = "queue"
    try:
        queue = queue_of(record)
        check_name(queue)
        if not declares(queue):
            raise ProtocolError(f"no queue or address {queue[:80]!r} is declared")
        what = "size"
        refuse_oversized(record, target.max_record_bytes)
        what = "header"
        read_send(record, queue, "", now_ms)
    except ProtocolError as error:
        return partition, what, str(error), None
    return partition, None, None, queue


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))
