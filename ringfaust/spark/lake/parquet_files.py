"""Parquet files of a table, written without Spark. Spark's tasks load this module."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from ringfaust.spark.lake.tables import MOSTLY_DISTINCT, LakeTable
from ringfaust.spark.vendor import to_arrow_schema

_ROWS_PER_WRITE = 100_000
"""Rows buffered for each file, so that Parquet's pages have a good size."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is written but not yet part of its table."""

    path: str
    """Relative to the table's folder."""
    size_bytes: int
    partition: Mapping[str, str | None]
    """The values of the table's partition columns."""
    stats: str
    """Delta's statistics: number of rows, and bounds of some columns."""


def file_schema(table: LakeTable) -> pa.Schema:
    """The columns of a table's files. Their folders give the others."""
    columns = to_arrow_schema(table.schema)
    return pa.schema(field for field in columns if field.name not in table.partitioned_by)


class FileWriter:
    """Writes a file of a table.

    Args:
        files: the table's folder.
        table: the table.
        partition: the values of its partition columns.
    """

    def __init__(
        self, files: FileSystem, table: LakeTable, partition: Mapping[str, str | None]
    ) -> None:
        self._files, self._partition = files, partition
        folders = [f"{name}={value or _NULL_FOLDER}" for name, value in partition.items()]
        self._path = "/".join([*folders, f"part-{uuid.uuid4()}.zstd.parquet"])
        if folders:
            files.create_dir("/".join(folders))
        self._columns = file_schema(table)
        # Without bounds of any column delta-rs would take the file for empty.
        self._bounded = table.skip_by or tuple(self._columns.names)
        few_values = [name for name in self._columns.names if name not in MOSTLY_DISTINCT]
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._path, self._columns, filesystem=files, compression="zstd",
            use_dictionary=few_values, write_statistics=list(self._bounded),
            metadata_collector=self._metadata,
        )  # fmt: skip
        self._buffer: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows that have the columns of the file."""
        self._buffer.append(rows)
        if sum(map(len, self._buffer)) >= _ROWS_PER_WRITE:
            self._write()

    def _write(self) -> None:
        if self._buffer:
            self._writer.write_table(pa.concat_tables(self._buffer))
            self._buffer.clear()

    def close(self) -> NewFile:
        """Finish the file."""
        self._write()
        self._writer.close()
        (metadata,) = self._metadata
        stats = _stats(metadata, self._bounded, self._columns)
        size_bytes = self._files.get_file_info(self._path).size
        return NewFile(self._path, size_bytes, self._partition, stats)


def discard(folder: FileSystem, files: Iterable[NewFile]) -> None:
    """Delete files that did not become part of the table."""
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            folder.delete_file(file.path)


def _stats(file: pq.FileMetaData, names: Sequence[str], columns: pa.Schema) -> str:
    """A file's statistics for Delta's log, by which readers can skip it."""
    bounds: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    for name in names:
        index = columns.get_field_index(name)
        found = [group.column(index).statistics for group in groups]
        bounds["nullCount"][name] = sum(each.null_count for each in found)
        if all(each.has_min_max for each in found):
            bounds["minValues"][name] = _bound(min(each.min for each in found))
            bounds["maxValues"][name] = _bound(max(each.max for each in found))
    return json.dumps({"numRecords": file.num_rows, **bounds})


def _bound(value: Any) -> Any:
    """A bound as Delta writes it. Only whole minutes are compared, so ms are exact enough."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.000Z"
    return value
