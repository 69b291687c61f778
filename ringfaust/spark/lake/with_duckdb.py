"""The lake in DuckDB: all its tables and views. Starts no Spark."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from weakref import WeakSet

import duckdb
from deltalake import DeltaTable

from ringfaust.spark.lake.tables import QUEUE_COUNTS, TABLES, path
from ringfaust.spark.lake.views import DUCKDB, ENDED_ON, VIEWS, view

_open: WeakSet[duckdb.DuckDBPyConnection] = WeakSet()


@atexit.register
def _close_all() -> None:
    """DuckDB's threads may still read Python's datasets, and crash once the interpreter is gone."""
    for connection in list(_open):
        connection.close()


def open_duckdb(
    root: str, storage_options: Mapping[str, str] | None = None
) -> duckdb.DuckDBPyConnection:
    """Open a lake, a folder or URI, as it is now.

    `storage_options` are those of `deltalake.DeltaTable`, for object stores.

    Returns:
        A connection in which `transitions`, `messages_now` and so on can be queried, with times in
        UTC. It is closed when the interpreter ends, if nobody has closed it.

    Raises:
        TableNotFoundError: there is no lake at `root`.
    """
    connection = duckdb.connect()
    _open.add(connection)
    # Days and hours are UTC's: in another zone, date_trunc would cut the lake's days in two.
    connection.execute("SET TimeZone = 'UTC'")
    options = None if storage_options is None else dict(storage_options)
    tables = {  # a lake that an older version has written has no counts
        name: DeltaTable(path(root, name), storage_options=options)
        for name in TABLES
        if name != QUEUE_COUNTS.name or DeltaTable.is_deltatable(path(root, name), options)
    }
    for name, table in tables.items():
        connection.register(name, table.to_pyarrow_dataset())
    since = {name: f"batch > {last_closing(tables[name])}" for name in ENDED_ON}
    for name in VIEWS:
        query = view(name, str, since, DUCKDB)
        connection.execute(f"CREATE VIEW {name} AS {query}")
    return connection


def last_closing(table: DeltaTable) -> int:
    """The last batch in `messages` or `deliveries`, from statistics in Delta's log; -1: none."""
    files = table.get_add_actions(flatten=True)
    if "max.batch" not in files.schema.names:
        return -1
    return max((batch for batch in files["max.batch"].to_pylist() if batch is not None), default=-1)
