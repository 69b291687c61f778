"""The short way of a batch of events: records as a worker writes them, from bronze to transitions.

Tasks in Python read bronze's files, parse lines and write columns by Arrow, in a third of the
time that Spark's own parser and writer take. It is for lakes on a local file system, and for
records that are plain (`arrow_lines`). A batch with any other goes the long way (`transitions`),
which tells the same of plain ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.lake.day_files import DayFile, discard, write_day_files
from ringfaust.spark.lake.profile import Record
from ringfaust.spark.lake.store import local_folder, transaction
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS, LakeTable, path

_READER, _WRITER = 1, 2
"""Delta's versions of tables without features: what their files hold is what they hold."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A batch, written and not yet part of the table."""

    folder: str
    """Of the table."""
    records: list[Record]
    """In order."""
    files: list[DayFile]

    def commit(self, stream: str, batch: int) -> None:
        """Make it part of the table; once, as `append` does."""
        table = DeltaTable(self.folder)
        name = transaction(stream)
        done = table.transaction_version(name)
        if done is not None and done >= batch:
            self.discard()
            return
        now_ms = time.time_ns() // 1_000_000
        adds: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size_bytes, {"date": file.date}, now_ms, True, file.stats)
            for file in self.files
        ]
        table.create_write_transaction(
            adds,
            "append",
            table.schema(),
            list(TRANSITIONS.partitioned_by),
            commit_properties=CommitProperties(app_transactions=[Transaction(name, batch)]),
        )

    def discard(self) -> None:
        """Remove it."""
        discard(self.folder, self.files)


def translate(spark: SparkSession, root: str, bronze: DataFrame, batch: int) -> Translated | None:
    """Write the files of a batch's transitions.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        bronze: the batch's records of the events topic, as they are in the table.
        batch: its number.

    Returns:
        None: this batch has to go the long way.
    """
    lake = local_folder(spark, root)
    if lake is None or not (_is_simple(lake, BRONZE) and _is_simple(lake, TRANSITIONS)):
        return None
    folder = path(lake, TRANSITIONS.name)
    sources = [name.removeprefix("file:") for name in bronze.inputFiles()]
    tasks = spark.sparkContext.parallelize(sources, max(1, len(sources)))
    parts = tasks.map(lambda source: write_day_files(source, folder, batch)).collect()
    plain = [part for part in parts if part is not None]
    records = [record for part in plain for record in part.records]
    records.sort(key=lambda record: (record.partition, record.offset))
    whole = Translated(folder, records, [file for part in plain for file in part.files])
    if len(plain) < len(parts):
        whole.discard()
        return None
    return whole


def _is_simple(lake: str, table: LakeTable) -> bool:
    """Is it as this version makes it?"""
    try:
        found = DeltaTable(path(lake, table.name))
    except DeltaError:  # it cannot read what Spark can, such as a path with %FF in it
        return False
    protocol = found.protocol()
    has = {field.name for field in found.schema().fields}
    is_known = (protocol.min_reader_version, protocol.min_writer_version) <= (_READER, _WRITER)
    return is_known and has.issuperset(table.schema.names)
