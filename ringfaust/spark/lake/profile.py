"""The steps that the records of a batch contain, known before their lines are parsed.

The steps show which records may repeat earlier ones. Records that look as a worker writes them are
scanned as bytes in Python, which takes less time than Spark's text functions. All others are split
into lines in the JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.spark.vendor import from_arrow_schema

_RECORD_KEY = ["partition", "offset"]
_PROFILE = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("lines", pa.int64()),
        ("low", pa.int64()), ("high", pa.int64()), ("doubled", pa.bool_()),
    ]
)  # fmt: skip
_LINE_START = r'\{"step":(\d{1,18}),"event":"'
"""How each line that a worker writes begins."""
_LINE_STARTS = re.compile(b"\n" + _LINE_START.encode())


@dataclass(frozen=True, slots=True)
class RecordProfile:
    """The steps in one record of the events topic."""

    partition: int
    offset: int
    lines: int
    low: int | None
    """Lowest step. None if no line has one: all lines are bad."""
    high: int | None
    """Highest step."""
    doubled: bool
    """Whether it contains a line twice."""


def profile_records(records: DataFrame) -> tuple[list[RecordProfile], DataFrame]:
    """Profile a batch, whose number of records is bounded.

    Args:
        records: of the events topic, with at least the columns partition, offset and value.

    Returns:
        The profiles in order, and the records with their value as text.
    """
    scanned = (
        records.select(*_RECORD_KEY, "value")
        .mapInArrow(_scan, from_arrow_schema(_PROFILE))
        .collect()
    )
    found = [RecordProfile(*row) for row in scanned if row.lines is not None]
    others = [(row.partition, row.offset) for row in scanned if row.lines is None]
    records = as_text(records)
    if not others:
        return _in_order(found), records
    records = records.withColumn("value", F.make_valid_utf8("value"))
    keys = records.sparkSession.createDataFrame(others, "partition int, offset long")
    found += _profile_lines(records.join(F.broadcast(keys), _RECORD_KEY, "left_semi"))
    return _in_order(found), records


def as_text(records: DataFrame) -> DataFrame:
    """The records with their value as text; a null value becomes empty text."""
    return records.withColumn("value", F.coalesce(F.col("value").cast("string"), F.lit("")))


def step_of(line: Column) -> Column:
    """The step of a line with step and event, else null. Parses JSON only if it must."""
    quick = F.regexp_extract(line, f"^{_LINE_START}", 1).try_cast("long")
    slow = F.when(
        F.get_json_object(line, "$.event").isNotNull(),
        F.get_json_object(line, "$.step").try_cast("long"),
    )
    return F.coalesce(quick, slow)


def _in_order(records: list[RecordProfile]) -> list[RecordProfile]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The key of each record and what `_scan_value` finds, null where it finds nothing."""
    for batch in batches:
        rows = [
            {"partition": row["partition"], "offset": row["offset"], **_scan_value(row["value"])}
            for row in batch.to_pylist()
        ]
        yield pa.RecordBatch.from_pylist(rows, _PROFILE)


def _scan_value(value: bytes | None) -> dict[str, Any]:
    """Lines, lowest and highest step, doubled; nothing unless all lines look like a worker's."""
    if value is None or not value.isascii():
        return {}
    steps = [int(step) for step in _LINE_STARTS.findall(b"\n" + value)]
    lines = value.split(b"\n")
    if len(steps) < len(lines):
        return {}
    doubled = len(set(lines)) < len(lines)
    return {"lines": len(lines), "low": min(steps), "high": max(steps), "doubled": doubled}


def _profile_lines(records: DataFrame) -> list[RecordProfile]:
    """Profile records with any text, in the JVM."""
    lines = records.select(*_RECORD_KEY, F.split("value", "\n").alias("lines"))
    # Once a record: beside `explode` it would be computed for each line.
    lines = lines.withColumn("doubled", F.size(F.array_distinct("lines")) < F.size("lines"))
    lines = lines.select(*_RECORD_KEY, "doubled", F.explode("lines").alias("raw"))
    step = step_of(F.col("raw"))
    profiles = lines.groupBy(*_RECORD_KEY).agg(
        F.count("*"), F.min(step), F.max(step), F.first("doubled")
    )
    return [RecordProfile(*row) for row in profiles.collect()]
