"""A file of bronze → Parquet files of transitions, one for each day. Runs in Spark tasks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from ringfaust.spark.arrow_lines import NotPlainError, read_plain_lines
from ringfaust.spark.lake.parquet_files import FileWriter, NewFile, discard, file_schema
from ringfaust.spark.lake.storage import Storage
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS

_COLUMNS = file_schema(TRANSITIONS)
_RECORDS_PER_READ = 50
"""Of up to 1 MB each."""
_YEAR_10000_MS = 253_402_300_800_000
"""From then on Spark and Python disagree about dates."""


def write_day_files(storage: Storage, source: str, batch: int) -> list[NewFile] | None:
    """Write the transitions of one file of bronze.

    Args:
        storage: the lake.
        source: the file, in the folder of bronze.
        batch: only the records of this batch are written.

    Returns:
        None if a record is not plain. Then no file is left behind.
    """
    folder = storage.files(TRANSITIONS)
    days: dict[date, FileWriter] = {}
    try:
        for chunk in _records(storage.files(BRONZE), source, batch):
            for day, rows in _by_day(read_plain_lines(chunk), batch):
                if day not in days:
                    days[day] = FileWriter(folder, TRANSITIONS, {"date": day.isoformat()})
                days[day].add(rows)
    except NotPlainError:
        discard(folder, [day.close() for day in days.values()])
        return None
    return [day.close() for day in days.values()]


def _records(files: FileSystem, source: str, batch: int) -> Iterator[pa.Table]:
    """The batch's records in a file, in chunks."""
    file = pq.ParquetFile(source, filesystem=files, coerce_int96_timestamp_unit="us")
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
