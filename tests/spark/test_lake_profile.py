"""The scan of bytes and the JVM give the same profiles; text that is not UTF-8 is repaired."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake.profile import (
    RecordProfile,
    _profile_lines,
    _scan_value,
    profile_records,
)

OURS = b'{"step":%d,"event":"acked","queue":"a","time_ms":1,"by":"tick"}'
PLAIN = [
    b"\n".join(OURS % step for step in (7, 5, 9)),
    b"\n".join(OURS % step for step in (7, 5, 7)),
    OURS % 999_999_999_999_999_999,
    OURS % 4 + b"\r\n" + OURS % 5,
    b'{"step":3,"event":"cut off',
]
STRANGE = [
    None,
    b"",
    b"\n",
    OURS % 4 + b"\n",
    b"no json\n" + OURS % 6,
    b'{"event":"acked","step":8}\n' + OURS % 6,
    b' {"step":2,"event":"acked"}',
    b'{"step":"12","event":"acked"}',
    b'{"step":1.5,"event":"acked"}\n{"step":1e3,"event":"acked"}',
    b'{"step":3,"event":7}',
    b'{"step":3,"event":null}',
    OURS % 1_000_000_000_000_000_000,
    OURS % 99_999_999_999_999_999_999,
    '{"step":1,"event":"düe"}'.encode(),
    b'{"step":1,"event":"\xff"}\n{"step":2,"event":"\xfe"}\n{"step":1,"event":"\xff"}',
    b"\xff\n\xfe",
]
SCHEMA = "partition int, offset long, value binary"


def _by_jvm(spark: SparkSession, values: list[bytes | None]) -> list[RecordProfile]:
    rows = [(0, offset, value) for offset, value in enumerate(values)]
    text = F.make_valid_utf8(F.coalesce(F.col("value").cast("string"), F.lit("")))
    records = spark.createDataFrame(rows, SCHEMA).withColumn("value", text)
    return sorted(_profile_lines(records), key=lambda record: record.offset)


def _profiled(
    spark: SparkSession, values: list[bytes | None]
) -> tuple[list[RecordProfile], list[str]]:
    rows = [(0, offset, value) for offset, value in enumerate(values)]
    found, records = profile_records(spark.createDataFrame(rows, SCHEMA))
    return found, [row.value for row in records.orderBy("offset").collect()]


def test_records_of_a_worker_are_profiled_by_the_scan(spark: SparkSession) -> None:
    found, texts = _profiled(spark, list(PLAIN))
    assert all(_scan_value(value) for value in PLAIN)
    assert found == _by_jvm(spark, list(PLAIN))
    assert found[:2] == [RecordProfile(0, 0, 3, 5, 9, False), RecordProfile(0, 1, 3, 5, 7, True)]
    assert texts == [value.decode() for value in PLAIN]


def test_strange_records_among_plain_ones_are_profiled_by_the_jvm(spark: SparkSession) -> None:
    values = [value for pair in zip(STRANGE, PLAIN * 5, strict=False) for value in pair]
    assert not any(_scan_value(value) for value in STRANGE)
    found, texts = _profiled(spark, values)
    assert found == _by_jvm(spark, values)
    repaired = [(value or b"").decode(errors="replace") for value in values]
    assert texts == repaired


def test_an_empty_batch_has_no_profiles(spark: SparkSession) -> None:
    assert _profiled(spark, []) == ([], [])
