"""Commits of files to tables, without Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from ringfaust.spark.lake.parquet_files import NewFile
from ringfaust.spark.lake.storage import Storage
from ringfaust.spark.lake.tables import LakeTable

_MAX_READER_VERSION, _MAX_WRITER_VERSION = 1, 2
"""Delta's versions of tables without table features, whose files contain exactly their rows."""


def is_supported(storage: Storage, table: LakeTable) -> bool:
    """Whether a table still has the format in which this release creates it."""
    try:
        found = storage.open(table)
    except DeltaError:  # it cannot open every path that Spark can, such as one with %FF
        return False
    protocol = found.protocol()
    columns = {field.name for field in found.schema().fields}
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    is_known = versions <= (_MAX_READER_VERSION, _MAX_WRITER_VERSION)
    return is_known and columns.issuperset(table.schema.names)


def has_batch(storage: Storage, table: LakeTable, done: Transaction) -> bool:
    """Whether a table has a stream's batch already."""
    last = storage.open(table).transaction_version(done.app_id)
    return last is not None and last >= done.version


def commit(
    storage: Storage,
    table: LakeTable,
    files: Sequence[NewFile],
    *,
    removed: Sequence[str] = (),
    done: Transaction | None = None,
) -> None:
    """Add files to a table, and remove others, in one commit.

    Args:
        storage: the lake.
        table: the table.
        files: the new files.
        removed: paths of files that are part of the table.
        done: the stream and batch that the commit completes.

    Raises:
        CommitFailedError: another commit removed the same files.
    """
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.stats)
        for file in files
    ]
    actions += [RemoveAction(path, True, now_ms) for path in removed]
    if not (actions or done):
        return
    found = storage.open(table)
    try:
        found.create_write_transaction(
            actions,
            "append",
            found.schema(),
            list(table.partitioned_by),
            commit_properties=CommitProperties(app_transactions=[done] if done else None),
        )
    except CommitFailedError:
        # After a lost answer delta-rs tries again, and refuses what it has already committed.
        if done is None or not has_batch(storage, table, done):
            raise
