"""Gold's queries in DuckDB, for lakes on a local disk or S3.

A batch is small compared to what Spark does to plan, distribute and commit each query: DuckDB and
delta-rs take a tenth of that. Groups that do not fit into memory go to temporary files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, Transaction
from pyarrow.fs import FileSystem

from ringfaust.spark.lake.commits import commit, has_batch
from ringfaust.spark.lake.engine import ALL
from ringfaust.spark.lake.parquet_files import FileWriter, NewFile, file_schema
from ringfaust.spark.lake.storage import Storage
from ringfaust.spark.lake.store import GOLD, transaction
from ringfaust.spark.lake.tables import TABLES, LakeTable
from ringfaust.spark.lake.views import DUCKDB
from ringfaust.spark.lake.with_duckdb import last_closing
from ringfaust.spark.vendor import to_arrow_schema

_ROWS_PER_READ = 100_000
_MEMORY = "1GB"
"""Beside Spark's own 2 GB. What needs more goes to disk."""


class DuckDbEngine:
    """Runs gold's queries in this process. See `GoldEngine`.

    Args:
        storage: the lake.
    """

    array = DUCKDB.array

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._registered: set[str] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="ringfaust-gold-")
        self._connection = duckdb.connect(
            config={
                "temp_directory": self._folder.name,
                "memory_limit": _MEMORY,
                "preserve_insertion_order": False,
            }
        )
        self._connection.execute("SET TimeZone = 'UTC'")

    def name_of(self, table: str) -> str:  # noqa: D102 - see GoldEngine
        if table not in self._registered:
            self._connection.register(table, self._open(table).to_pyarrow_dataset())
            self._registered.add(table)
        return table

    def timestamp(self, expression: str) -> str:  # noqa: D102
        return DUCKDB.timestamp.format(ms=expression)

    def last_closing(self, table: str) -> int:  # noqa: D102
        return last_closing(self._open(table))

    def define(self, name: str, query: str) -> None:  # noqa: D102
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")

    def keep(self, name: str, query: str) -> None:  # noqa: D102
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def rows(self, query: str) -> Sequence[Sequence[Any]]:  # noqa: D102
        return self._connection.execute(query).fetchall()

    def append(  # noqa: D102
        self, query: str, table: LakeTable, batch: int, *, replace: str | None = None
    ) -> None:
        found, done = self._open(table.name), Transaction(transaction(GOLD), batch)
        if has_batch(found, done):
            return
        removed: list[str] = []
        if replace is not None:
            where = None if replace == ALL else ds.field(replace).is_null()
            removed = [file.path for file in found.to_pyarrow_dataset().get_fragments(where)]
        self._commit(query, table, found, removed, done)

    def merge(  # noqa: D102
        self,
        rows: str,
        table: LakeTable,
        batch: int,
        *,
        key: Sequence[str],
        update: Mapping[str, str],
        since: Mapping[str, Any] | None = None,
    ) -> None:
        found, done = self._open(table.name), Transaction(transaction(GOLD), batch)
        if has_batch(found, done):
            return
        where = None
        kinds = to_arrow_schema(table.schema)
        for name, bound in (since or {}).items():
            within = ds.field(name) >= pa.scalar(bound, kinds.field(name).type)
            where = within if where is None else where & within
        dataset = found.to_pyarrow_dataset()
        files = list(dataset.get_fragments(where))
        if not files:
            self._commit(f"SELECT * FROM {rows}", table, found, [], done)
            return
        existing = ds.FileSystemDataset(files, dataset.schema, files[0].format, files[0].filesystem)
        self._connection.register("existing", existing)
        columns = {name: f"coalesce(t.{name}, s.{name})" for name in table.schema.names}
        columns |= {
            name: f"CASE WHEN t.{key[0]} IS NULL THEN s.{name} "
            f"WHEN t.batch < s.batch THEN {value} ELSE t.{name} END"
            for name, value in update.items()
        }
        selected = ", ".join(f"{value} AS {name}" for name, value in columns.items())
        on = " AND ".join(f"t.{name} = s.{name}" for name in key)
        self._commit(
            f"SELECT {selected} FROM existing t FULL JOIN {rows} s ON {on}",
            table,
            found,
            [file.path for file in files],
            done,
        )

    def _commit(
        self,
        query: str,
        table: LakeTable,
        found: DeltaTable,
        removed: Sequence[str],
        done: Transaction,
    ) -> None:
        """Write the rows of a query, and replace these files by them in one commit."""
        reader = self._connection.sql(query).to_arrow_reader(_ROWS_PER_READ)
        files = _write_files(reader, self._storage.files(table), table)
        commit(found, table, files, done, removed=removed)
        self._connection.unregister(table.name)
        self._registered.discard(table.name)

    def _open(self, table: str) -> DeltaTable:
        return self._storage.open(TABLES[table])

    def close(self) -> None:  # noqa: D102
        self._connection.close()
        self._folder.cleanup()


def _write_files(
    batches: Iterable[pa.RecordBatch], folder: FileSystem, table: LakeTable
) -> list[NewFile]:
    """Write rows to one file for each day, or to a single one if the table has no days."""
    columns, day = file_schema(table), table.day
    writers: dict[str | None, FileWriter] = {}
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        days = pc.unique(rows[day]).to_pylist() if day else [None]
        for value in days:
            of_day = rows
            if day:
                same = pc.is_null(rows[day]) if value is None else pc.equal(rows[day], value)
                of_day = rows.filter(same)
            text = None if value is None else value.isoformat()
            if text not in writers:
                writers[text] = FileWriter(folder, table, {day: text} if day else {})
            writers[text].add(of_day.select(columns.names).cast(columns))
    return [writer.close() for writer in writers.values()]
