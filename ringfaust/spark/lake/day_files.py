"""A file of bronze → Parquet files of transitions, one for each day. Runs in Spark tasks."""

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

from ringfaust.spark.arrow_lines import NotPlainError, read_plain_lines
from ringfaust.spark.lake.tables import MOSTLY_DISTINCT, TRANSITIONS
from ringfaust.spark.vendor import to_arrow_schema

_COLUMNS = pa.schema(f for f in to_arrow_schema(TRANSITIONS.schema) if f.name != "date")
"""The columns of a file. Its folder gives the date."""
_RECORDS_PER_READ = 50
"""Of up to 1 MB each."""
_ROWS_PER_WRITE = 100_000
"""Rows buffered for each day, so that Parquet's pages have a good size."""
_YEAR_10000_MS = 253_402_300_800_000
"""From then on Spark and Python disagree about dates."""


@dataclass(frozen=True, slots=True)
class DayFile:
    """A file of transitions that is written but not yet part of the table."""

    path: str
    """Relative to the table's folder."""
    size_bytes: int
    date: str
    stats: str
    """Delta's statistics: number of rows, and bounds of some columns."""


def write_day_files(source: str, folder: str, batch: int) -> list[DayFile] | None:
    """Write the transitions of one file of bronze.

    Args:
        source: the file.
        folder: the folder of the table `transitions`.
        batch: only the records of this batch are written.

    Returns:
        None if a record is not plain. Then no file is left behind.
    """
    days: dict[date, _DayWriter] = {}
    try:
        for chunk in _records(source, batch):
            for day, rows in _by_day(read_plain_lines(chunk), batch):
                if day not in days:
                    days[day] = _DayWriter(folder, day)
                days[day].add(rows)
    except NotPlainError:
        discard(folder, [day.close() for day in days.values()])
        return None
    return [day.close() for day in days.values()]


def discard(folder: str, files: Iterable[DayFile]) -> None:
    """Delete files that did not become part of the table."""
    for file in files:
        Path(folder, file.path).unlink(missing_ok=True)


def _records(source: str, batch: int) -> Iterator[pa.Table]:
    """The batch's records in a file, in chunks."""
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    names = ["partition", "offset", "timestamp", "value", "batch"]
    for chunk in file.iter_batches(_RECORDS_PER_READ, columns=names):
        # The file has several batches if someone compacted the table.
        records = pa.Table.from_batches([chunk]).filter(pc.field("batch") == batch)
        if len(records):
            yield records


def _by_day(lines: pa.Table, batch: int) -> Iterator[tuple[date, pa.Table]]:
    """Lines in the columns of the table's files, by the day of the decision.

    Raises:
        NotPlainError: Spark and Python might disagree about a time.
    """
    stamp = lines["timestamp"].cast(pa.timestamp("ms"), safe=False)
    time = pc.coalesce(lines["time_ms"], stamp.cast(pa.int64()))
    bounds = pc.min_max(time).as_py()
    if bounds["min"] < 0 or bounds["max"] >= _YEAR_10000_MS:
        raise NotPlainError
    rows = lines.append_column("batch", pa.array(np.full(len(lines), batch, dtype=np.int64)))
    rows = rows.select(_COLUMNS.names).cast(_COLUMNS)
    days = time.cast(pa.timestamp("ms")).cast(pa.date32())
    for day in pc.unique(days):
        yield day.as_py(), rows.filter(pc.equal(days, day))


class _DayWriter:
    """Writes a file of one day's transitions."""

    def __init__(self, folder: str, day: date) -> None:
        self._date = day.isoformat()
        self._path = f"date={self._date}/part-{uuid.uuid4()}.zstd.parquet"
        self._file = Path(folder, self._path)
        self._file.parent.mkdir(exist_ok=True)
        few_values = [name for name in _COLUMNS.names if name not in MOSTLY_DISTINCT]
        self._writer = pq.ParquetWriter(
            self._file, _COLUMNS, compression="zstd", use_dictionary=few_values,
            write_statistics=list(TRANSITIONS.skip_by),
        )  # fmt: skip
        self._buffer: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._buffer.append(rows)
        if sum(map(len, self._buffer)) >= _ROWS_PER_WRITE:
            self._write()

    def _write(self) -> None:
        if self._buffer:
            self._writer.write_table(pa.concat_tables(self._buffer))
            self._buffer.clear()

    def close(self) -> DayFile:
        self._write()
        self._writer.close()
        size = self._file.stat().st_size
        return DayFile(self._path, size, self._date, _stats(pq.read_metadata(self._file)))


def _stats(file: pq.FileMetaData) -> str:
    """A file's statistics for Delta's log, by which readers can skip it."""
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
