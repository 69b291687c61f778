"""Transitions of a file of bronze → Parquet files, one a day; it runs in Spark's tasks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from ringfaust.spark.arrow_lines import NotPlainError, read_plain_lines
from ringfaust.spark.lake.profile import Record
from ringfaust.spark.lake.tables import MOSTLY_DISTINCT, TRANSITIONS

_COLUMNS = pa.schema(f for f in to_arrow_schema(TRANSITIONS.schema) if f.name != "date")
"""Of a file: its folder tells the date."""
_RECORDS_AT_ONCE = 50
"""Of up to 1 MB each."""
_ROWS_AT_ONCE = 100_000
"""That are kept in memory, for pages of a good size."""
_END_OF_TIME_MS = 253_402_300_800_000
"""The year 10,000: Spark and Python disagree about what comes then."""


@dataclass(frozen=True, slots=True)
class DayFile:
    """A file of transitions that was written, and that the table does not know yet."""

    path: str
    """Under the table's folder."""
    size_bytes: int
    date: str
    stats: str
    """Delta's: rows, and the bounds of some columns."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of some records."""

    records: list[Record]
    files: list[DayFile]


def write_day_files(source: str, folder: str, batch: int) -> Written | None:
    """Write the transitions of one file of bronze.

    Args:
        source: the file.
        folder: of the table of transitions.
        batch: of the micro-batch; records of others are left out.

    Returns:
        None: the file holds a record that is not plain; nothing was left written.
    """
    records: list[Record] = []
    days: dict[date, _Day] = {}
    try:
        for some in _records(source, batch):
            lines = read_plain_lines(some)
            records += _spans(lines)
            for day, rows in _by_day(lines, batch):
                days.setdefault(day, _Day(folder, day)).add(rows)
    except NotPlainError:
        discard(folder, [day.end() for day in days.values()])
        return None
    return Written(records, [day.end() for day in days.values()])


def discard(folder: str, files: Iterable[DayFile]) -> None:
    """Remove files that the table does not need."""
    for file in files:
        Path(folder, file.path).unlink(missing_ok=True)


def _records(source: str, batch: int) -> Iterator[pa.Table]:
    """The batch's records in a file, some at once."""
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    names = ["partition", "offset", "timestamp", "value", "batch"]
    for chunk in file.iter_batches(_RECORDS_AT_ONCE, columns=names):
        # Of several batches, if someone had the files put together.
        records = pa.Table.from_batches([chunk]).filter(pc.field("batch") == batch)
        if len(records):
            yield records


def _spans(lines: pa.Table) -> Iterator[Record]:
    """What each record's lines say of steps."""
    begins = np.flatnonzero(lines["line"].to_numpy() == 0)
    ends = np.append(begins[1:], len(lines))
    step = lines["step"].to_numpy()
    lows, highs = np.minimum.reduceat(step, begins), np.maximum.reduceat(step, begins)
    raw = lines["raw"]
    some_twice = pc.count_distinct(raw).as_py() < len(lines)
    for begin, end, low, high in zip(begins, ends, lows, highs, strict=True):
        count = int(end - begin)
        doubled = some_twice and pc.count_distinct(raw.slice(begin, count)).as_py() < count
        partition, offset = (lines[name][begin].as_py() for name in ("partition", "offset"))
        yield Record(partition, offset, count, int(low), int(high), doubled)


def _by_day(lines: pa.Table, batch: int) -> Iterator[tuple[date, pa.Table]]:
    """As the table's files have them; by the day of the decision.

    Raises:
        NotPlainError: a time that Spark and Python may understand in two ways.
    """
    stamp = lines["timestamp"].cast(pa.timestamp("ms"), safe=False)
    time = pc.coalesce(lines["time_ms"], stamp.cast(pa.int64()))
    bounds = pc.min_max(time).as_py()
    if bounds["min"] < 0 or bounds["max"] >= _END_OF_TIME_MS:
        raise NotPlainError
    rows = lines.append_column("batch", pa.array(np.full(len(lines), batch, dtype=np.int64)))
    rows = rows.select(_COLUMNS.names).cast(_COLUMNS)
    days = time.cast(pa.timestamp("ms")).cast(pa.date32())
    for day in pc.unique(days):
        yield day.as_py(), rows.filter(pc.equal(days, day))


class _Day:
    """A file of one day's transitions, while it is written."""

    def __init__(self, folder: str, day: date) -> None:
        self._date = day.isoformat()
        self._path = f"date={self._date}/part-{uuid.uuid4()}.zstd.parquet"
        self._place = Path(folder, self._path)
        self._place.parent.mkdir(exist_ok=True)
        few_values = [name for name in _COLUMNS.names if name not in MOSTLY_DISTINCT]
        self._writer = pq.ParquetWriter(
            self._place, _COLUMNS, compression="zstd", use_dictionary=few_values,
            write_statistics=list(TRANSITIONS.skip_by),
        )  # fmt: skip
        self._waiting: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= _ROWS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting.clear()

    def end(self) -> DayFile:
        self._write()
        self._writer.close()
        size = self._place.stat().st_size
        return DayFile(self._path, size, self._date, _stats(pq.read_metadata(self._place)))


def _stats(file: pq.FileMetaData) -> str:
    """What Delta's log tells of a file, so that readers can skip it."""
    bounds: dict[str, dict[str, int | str]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    for name in TRANSITIONS.skip_by:
        index = _COLUMNS.get_field_index(name)
        found = [group.column(index).statistics for group in groups]
        bounds["nullCount"][name] = sum(each.null_count for each in found)
        if all(each.has_min_max for each in found):
            bounds["minValues"][name] = min(each.min for each in found)
            bounds["maxValues"][name] = max(each.max for each in found)
    return json.dumps({"numRecords": file.num_rows, **bounds})
