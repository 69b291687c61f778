"""What the records of a batch say of steps: what may be a repeat is known before lines are read.

Records as a worker writes them are looked at as bytes, in Python, which takes less than Spark's own
text functions. All others go the long way, in the JVM, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

_PLACE = ["partition", "offset"]
_SPANS = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("lines", pa.int64()),
        ("low", pa.int64()), ("high", pa.int64()), ("doubled", pa.bool_()),
    ]
)  # fmt: skip
_BEGIN = r'\{"step":(\d{1,18}),"event":"'
"""Of each line that a worker writes."""
_BEGIN_OF_LINES = re.compile(b"\n" + _BEGIN.encode())


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the events topic: what its lines' steps say."""

    partition: int
    offset: int
    lines: int
    low: int | None
    """Lowest step; none has one: all lines are bad."""
    high: int | None
    doubled: bool
    """Does it tell a line twice?"""


def survey(records: DataFrame) -> tuple[list[Record], DataFrame]:
    """Look at a batch: as many records as it has, which is bounded.

    Args:
        records: of the events topic; columns partition, offset and value at least.

    Returns:
        What each record spans, in order; and the records with their value as text.
    """
    glanced = (
        records.select(*_PLACE, "value").mapInArrow(_glance, from_arrow_schema(_SPANS)).collect()
    )
    found = [Record(*row) for row in glanced if row.lines is not None]
    strange = [(row.partition, row.offset) for row in glanced if row.lines is None]
    records = as_text(records)
    if not strange:
        return _in_order(found), records
    records = records.withColumn("value", F.make_valid_utf8("value"))
    places = records.sparkSession.createDataFrame(strange, "partition int, offset long")
    found += _by_line(records.join(F.broadcast(places), _PLACE, "left_semi"))
    return _in_order(found), records


def as_text(records: DataFrame) -> DataFrame:
    """The records with their value as text; none is empty text."""
    return records.withColumn("value", F.coalesce(F.col("value").cast("string"), F.lit("")))


def step_of(line: Column) -> Column:
    """The step of a line that has step and event, else null; without parsing ours as JSON."""
    quick = F.regexp_extract(line, f"^{_BEGIN}", 1).try_cast("long")
    slow = F.when(
        F.get_json_object(line, "$.event").isNotNull(),
        F.get_json_object(line, "$.step").try_cast("long"),
    )
    return F.coalesce(quick, slow)


def _in_order(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _glance(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of each record its place and `_spans`, null where those are not known."""
    for batch in batches:
        rows = [
            {"partition": row["partition"], "offset": row["offset"], **_spans(row["value"])}
            for row in batch.to_pylist()
        ]
        yield pa.RecordBatch.from_pylist(rows, _SPANS)


def _spans(value: bytes | None) -> dict[str, Any]:
    """Lines, lowest and highest step, doubled; nothing if a line is not as a worker writes it."""
    if value is None or not value.isascii():
        return {}
    steps = [int(step) for step in _BEGIN_OF_LINES.findall(b"\n" + value)]
    lines = value.split(b"\n")
    if len(steps) < len(lines):
        return {}
    doubled = len(set(lines)) < len(lines)
    return {"lines": len(lines), "low": min(steps), "high": max(steps), "doubled": doubled}


def _by_line(records: DataFrame) -> list[Record]:
    """The same of any text."""
    lines = records.select(*_PLACE, F.split("value", "\n").alias("lines"))
    # Once a record: beside `explode` it would be done for each line.
    lines = lines.withColumn("doubled", F.size(F.array_distinct("lines")) < F.size("lines"))
    lines = lines.select(*_PLACE, "doubled", F.explode("lines").alias("raw"))
    step = step_of(F.col("raw"))
    spans = lines.groupBy(*_PLACE).agg(F.count("*"), F.min(step), F.max(step), F.first("doubled"))
    return [Record(*row) for row in spans.collect()]
