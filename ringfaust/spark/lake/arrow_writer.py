"""The Arrow writer: turns a batch of plain records in bronze into transitions.

Python tasks read the files of bronze, parse the lines and write the columns with Arrow, in a third
of the time that Spark's own parser and writer take. It needs a lake on a local file system and
plain records (`spark.arrow_lines`). Any other batch goes through the Spark writer (`transitions`),
which produces the same rows.
"""

from __future__ import annotations

import time

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake.day_files import DayFile, discard, write_day_files
from ringfaust.spark.lake.store import transaction
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS, LakeTable, path

_MAX_READER_VERSION, _MAX_WRITER_VERSION = 1, 2
"""Delta's versions of tables without table features, whose files contain exactly their rows."""


def write(spark: SparkSession, root: str, bronze: DataFrame, stream: str, batch: int) -> bool:
    """Write a batch's transitions, once.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        bronze: the batch's records of the events topic, as they are in the table.
        stream: the stream that the batch belongs to.
        batch: its number. A batch that the table already has is not written again.

    Returns:
        False if only the Spark writer can write this batch.
    """
    lake = HadoopFolder(spark, root).local_path()
    if lake is None or not (_is_supported(lake, BRONZE) and _is_supported(lake, TRANSITIONS)):
        return False
    folder = path(lake, TRANSITIONS.name)
    done = DeltaTable(folder).transaction_version(transaction(stream))
    if done is not None and done >= batch:
        return True
    sources = [name.removeprefix("file:") for name in bronze.inputFiles()]
    tasks = spark.sparkContext.parallelize(sources, max(1, len(sources)))
    parts = tasks.map(lambda source: write_day_files(source, folder, batch)).collect()
    files = [file for part in parts if part is not None for file in part]
    if None in parts:
        discard(folder, files)
        return False
    _commit(folder, files, stream, batch)
    return True


def _commit(folder: str, files: list[DayFile], stream: str, batch: int) -> None:
    table = DeltaTable(folder)
    now_ms = time.time_ns() // 1_000_000
    adds: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, {"date": file.date}, now_ms, True, file.stats)
        for file in files
    ]
    done = Transaction(transaction(stream), batch)
    table.create_write_transaction(
        adds,
        "append",
        table.schema(),
        list(TRANSITIONS.partitioned_by),
        commit_properties=CommitProperties(app_transactions=[done]),
    )


def _is_supported(lake: str, table: LakeTable) -> bool:
    """Whether the table still has the format in which this release creates it."""
    try:
        found = DeltaTable(path(lake, table.name))
    except DeltaError:  # it cannot open every path that Spark can, such as one with %FF
        return False
    protocol = found.protocol()
    columns = {field.name for field in found.schema().fields}
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    is_known = versions <= (_MAX_READER_VERSION, _MAX_WRITER_VERSION)
    return is_known and columns.issuperset(table.schema.names)
