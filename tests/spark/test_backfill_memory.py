"""What a backfill remembers while it checks the rows."""

from __future__ import annotations

import pyarrow as pa

from ringfaust.config import QueuesConfig
from ringfaust.spark.backfill.check import Row, check_batches, choose_partition
from ringfaust.spark.backfill.target import Target

TARGET = Target(
    topic="t", queue="q", partitions=4, max_record_bytes=1 << 20, batch_bytes=1 << 20,
    is_broker_time=False, earliest_ms=0, latest_ms=1 << 62, kept_from_ms=0,
)  # fmt: skip


def checked(*rows: tuple[bytes | None, bytes]) -> list[int]:
    """The partitions of rows with these keys and values."""
    mapped = [Row("t", -1, key, value, [], None) for key, value in rows]
    kinds = {"timestamp_ms": pa.int64(), "what": pa.string(), "fault": pa.string()}
    batch = pa.RecordBatch.from_pydict(
        {
            name: pa.array(column, kinds.get(name))
            for name, column in zip(Row._fields, zip(*mapped, strict=True), strict=True)
        }
    )
    queues = QueuesConfig.model_validate(
        {"routes": [{"topic": "t", "queue": "q"}], "queues": {"q": {}}}
    )
    (result,) = check_batches({"t": TARGET}, queues, 0, [batch])
    return list(result.column("partition").to_pylist())


def test_values_are_not_remembered_only_keys() -> None:
    """Without keys, the values chose the partitions, and 100,000 of them stayed in memory."""
    choose_partition.cache_clear()
    keyless = checked((None, b"a" * 20_000), (None, b"b" * 20_000), (None, b""))
    assert choose_partition.cache_info().currsize == 0
    assert checked((b"a" * 20_000, b""), (b"b" * 20_000, b""), (b"", b"")) == keyless
    assert choose_partition.cache_info().currsize == 3
