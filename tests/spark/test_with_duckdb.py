"""A reader's connection is closed before the interpreter ends, also if the reader forgets it.

DuckDB's threads may still read Arrow's datasets then: about one reader in twenty died of a signal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

from ringfaust.spark.lake.tables import TABLES, path
from ringfaust.spark.vendor import to_arrow_schema

_READER = """
import atexit, sys, duckdb

def look():  # registered first, so it runs last
    try:
        connection.execute("SELECT 1")
    except duckdb.ConnectionException:
        print("closed")

atexit.register(look)
from ringfaust.spark.lake.with_duckdb import open_duckdb
connection = open_duckdb(sys.argv[1])
assert connection.sql("SELECT count(*) FROM transitions").fetchall() == [(0,)]
"""


def test_days_and_hours_are_those_of_utc(tmp_path: Path) -> None:
    """In a zone with half hours, an hour of the reader's would be two halves of the lake's."""
    for table in TABLES.values():
        DeltaTable.create(path(str(tmp_path), table.name), to_arrow_schema(table.schema))
    ask = (
        "import sys; from ringfaust.spark.lake.with_duckdb import open_duckdb\n"
        "sql = \"SELECT date_trunc('hour', make_timestamptz(1760000000000000))::VARCHAR\"\n"
        "print(*open_duckdb(sys.argv[1]).sql(sql).fetchall()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask, str(tmp_path)],
        env={**os.environ, "TZ": "Asia/Kolkata"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2025-10-09 08:00:00+00\n"


def test_a_connection_that_nobody_closes_is_closed_at_the_end(tmp_path: Path) -> None:
    for table in TABLES.values():
        DeltaTable.create(path(str(tmp_path), table.name), to_arrow_schema(table.schema))
    done = subprocess.run(
        [sys.executable, "-c", _READER, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "closed\n"
