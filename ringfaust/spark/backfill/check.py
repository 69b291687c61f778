"""Records judged before they are written, by the code that will read them in a worker."""

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
from ringfaust.protocol.records import Headers, InRecord
from ringfaust.protocol.routes import queue_namer, read_send
from ringfaust.protocol.undecodable import refuse_oversized
from ringfaust.spark.backfill.target import Target
from ringfaust.spark.columns import ConsumedRecord

MAPPED = (
    "slice int, position long, topic string, partition int, key binary, value binary, "
    "headers array<struct<name:string,value:binary>>, timestamp_ms long, what string, fault string"
)
"""What comes in. `slice` and `partition` -1: the partition is chosen by the key, and is the slice.
`what` and `fault`: what kind of thing makes no sense, and how; null where nothing is wrong."""
CHECKED = f"{MAPPED}, queue string"

_CREATE_TIME = 0
_KEYS_REMEMBERED = 100_000


class _Row(NamedTuple):
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


class _Judged(NamedTuple):
    """What is found out about a row."""

    slice: int
    partition: int
    what: str | None
    fault: str | None
    queue: str | None = None


def check_rows(
    mapped: DataFrame, targets: Mapping[str, Target], queues: QueuesConfig, now_ms: int
) -> DataFrame:
    """Find queue and partition of each row, and what is wrong with it.

    Args:
        mapped: columns of `MAPPED`.
        targets: the topics in it.
        queues: which queues are declared.
        now_ms: the time that the headers' times are read at.

    Returns:
        Columns of `CHECKED`.
    """
    judge = Judge(targets, queues, now_ms)
    return mapped.select(*_Row._fields).mapInArrow(judge.batches, CHECKED)


def as_record(
    topic: str,
    now_ms: int,
    key: bytes | None,
    value: bytes | None,
    pairs: list[dict[str, Any]] | None,
) -> InRecord:
    """A row as a worker will read it at that time."""
    record = ConsumedRecord(topic, 0, 0, now_ms, _CREATE_TIME, key, value, read_headers(pairs))
    return record  # type: ignore[return-value]  # it is only read


def read_headers(pairs: list[dict[str, Any]] | None) -> Headers:
    """An array of structs as a client gives headers."""
    return [(pair["name"], pair["value"]) for pair in pairs or ()]


@lru_cache(_KEYS_REMEMBERED)
def choose_partition(key: bytes, partitions: int) -> int:
    """Where Kafka's own clients send a key."""
    return partition_of(key, partitions)


@dataclass(frozen=True, slots=True)
class Judge:
    """What a task needs to know; it travels to the executors."""

    targets: Mapping[str, Target]
    queues: QueuesConfig
    now_ms: int

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For mapInArrow."""
        catalog = self.queues.catalog()

        @lru_cache(_KEYS_REMEMBERED)
        def declares(name: str) -> bool:
            return catalog.declares(name) or catalog.address(name, {}) is not None

        namers = {name: queue_namer(target.queue) for name, target in self.targets.items()}
        for batch in batches:
            columns = (column.to_pylist() for column in batch.columns)
            judged = [
                self._judge(namers, declares, _Row(*row)) for row in zip(*columns, strict=True)
            ]
            fresh = {
                name: pa.array([each[at] for each in judged], kind)
                for at, (name, kind) in enumerate(zip(_Judged._fields, _KINDS, strict=True))
            }
            arrays = [
                fresh.get(name, column)
                for name, column in zip(_Row._fields, batch.columns, strict=True)
            ]
            names = [*_Row._fields, "queue"]
            yield pa.RecordBatch.from_arrays([*arrays, fresh["queue"]], names)

    def _judge(
        self,
        namers: Mapping[str, Callable[[InRecord], str]],
        declares: Callable[[str], bool],
        row: _Row,
    ) -> _Judged:
        target = self.targets[row.topic]
        partition = row.partition
        if partition < 0:
            # Without a key any will do, if it is the same each time.
            chooses = row.value or b"" if row.key is None else row.key
            partition = choose_partition(chooses, target.partitions)
        where = partition if row.slice < 0 else row.slice, partition
        if row.fault is not None:
            return _Judged(*where, row.what, row.fault)
        time_ms = row.timestamp_ms
        if time_ms is not None and not target.earliest_ms <= time_ms <= target.latest_ms:
            return _Judged(
                *where,
                "timestamp",
                f"{time_ms} ms since 1970: {row.topic} takes times from {target.earliest_ms} to "
                f"{target.latest_ms} (its message.timestamp.before.max.ms and after.max.ms)",
            )
        record = as_record(row.topic, self.now_ms, row.key, row.value, row.headers)
        what = "queue"
        try:
            queue = namers[row.topic](record)
            if not declares(queue):
                raise ProtocolError(
                    f"no queue or address {queue[:80]!r} is declared in queues.yaml"
                )
            what = "size"
            refuse_oversized(record, target.most_bytes)
            what = "header"
            read_send(record, queue, "", self.now_ms)
        except ProtocolError as error:
            return _Judged(*where, what, str(error))
        return _Judged(*where, None, None, queue)


_KINDS = (pa.int32(), pa.int32(), pa.string(), pa.string(), pa.string())
