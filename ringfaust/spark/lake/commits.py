"""Commits of files to tables on a local disk, without Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from ringfaust.spark.lake.parquet_files import NewFile
from ringfaust.spark.lake.tables import LakeTable, path

_MAX_READER_VERSION, _MAX_WRITER_VERSION = 1, 2
"""Delta's versions of tables without table features, whose files contain exactly their rows."""


def is_supported(lake: str, table: LakeTable) -> bool:
    """Whether a table still has the format in which this release creates it."""
    try:
        found = DeltaTable(path(lake, table.name))
    except DeltaError:  # it cannot open every path that Spark can, such as one with %FF
        return False
    protocol = found.protocol()
    columns = {field.name for field in found.schema().fields}
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    is_known = versions <= (_MAX_READER_VERSION, _MAX_WRITER_VERSION)
    return is_known and columns.issuperset(table.schema.names)


def commit(
    folder: str,
    table: LakeTable,
    files: Sequence[NewFile],
    *,
    removed: Sequence[str] = (),
    done: Transaction | None = None,
) -> None:
    """Add files to a table, and remove others, in one commit.

    Args:
        folder: the table's folder.
        table: the table.
        files: the new files.
        removed: paths of files that are part of the table.
        done: the stream and batch that the commit completes.
    """
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.stats)
        for file in files
    ]
    actions += [RemoveAction(path, True, now_ms) for path in removed]
    if actions or done:
        found = DeltaTable(folder)
        found.create_write_transaction(
            actions,
            "append",
            found.schema(),
            list(table.partitioned_by),
            commit_properties=CommitProperties(app_transactions=[done] if done else None),
        )
