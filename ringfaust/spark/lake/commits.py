"""Commits of files to tables, without Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import cache

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from ringfaust.spark.lake.parquet_files import NewFile
from ringfaust.spark.lake.storage import Storage
from ringfaust.spark.lake.tables import LakeTable

log = logging.getLogger(__name__)

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


def all_supported(storage: Storage, tables: Iterable[LakeTable]) -> bool:
    """Whether tables have that format. Logs once which ones do not: Spark alone writes them."""
    odd = tuple(table.name for table in tables if not is_supported(storage, table))
    if odd:
        _say_odd(storage.root, odd)
    return not odd


@cache
def _say_odd(root: str, tables: Sequence[str]) -> None:
    log.warning(
        "Spark alone writes the lake at %s, which takes longer: someone has changed the format of "
        "%s, for example by turning on deletion vectors. ALTER TABLE … DROP FEATURE takes a "
        "feature away again",
        root,
        ", ".join(tables),
    )


def has_batch(found: DeltaTable, done: Transaction) -> bool:
    """Whether a table, as it was opened, has a stream's batch already."""
    last = found.transaction_version(done.app_id)
    return last is not None and last >= done.version


def commit(
    found: DeltaTable,
    table: LakeTable,
    files: Sequence[NewFile],
    done: Transaction,
    *,
    removed: Sequence[str] = (),
) -> None:
    """Add files to a table, and remove others, in one commit.

    Between the moment at which the table was opened and the commit, no other driver may have
    committed the same batch. If files are removed, nobody may have committed anything: delta-rs
    would accept the removal of files that OPTIMIZE has replaced meanwhile, so their rows would
    count twice.

    Args:
        found: the table, as it was opened before `removed` and `done` were looked up in it.
        table: the table.
        files: the new files.
        done: the stream and batch that the commit completes.
        removed: paths of files that are part of the table.

    Raises:
        CommitFailedError: someone else has committed. Open the table again, and begin again.
    """
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.stats)
        for file in files
    ]
    actions += [RemoveAction(path, True, now_ms) for path in removed]
    properties = CommitProperties(
        max_commit_retries=0 if removed else None, app_transactions=[done]
    )
    try:
        found.create_write_transaction(
            actions,
            "append",
            found.schema(),
            list(table.partitioned_by),
            commit_properties=properties,
        )
    except CommitFailedError:
        # The batch is there if another driver has written it: the rows are the same. Or if an
        # answer was lost: delta-rs tries again, and refuses what it has already committed.
        found.update_incremental()
        if not has_batch(found, done):
            raise
