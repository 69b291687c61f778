"""Making the lake's tables, and writing to them so that a batch counts once.

Every append names its stream and batch as Delta's transaction (`txnAppId`, `txnVersion`): a batch
that is done again after a crash changes nothing in the tables that have it already.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from ringfaust.errors import RingfaustError
from ringfaust.spark.lake.tables import BRONZE, TABLES, LakeTable, path

_APPLICATION = "ringfaust.application"
_PROPERTIES = {"delta.checkpointInterval": "20"}
"""Readers without Spark open few files of the log."""


class LakeError(RingfaustError):
    """The lake cannot be used as it is; the text says what to do.

    Attributes:
        root: the lake's folder or URI.
    """

    def __init__(self, root: str, text: str) -> None:
        self.root = root
        super().__init__(f"the lake at {root} {text}")


def create_tables(spark: SparkSession, root: str, application: str) -> None:
    """Make the tables that are missing.

    Raises:
        LakeError: the lake holds what another application told: partitions, steps and queues of
            two would be mixed up.
    """
    if DeltaTable.isDeltaTable(spark, path(root, BRONZE.name)):
        owner = _properties(spark, root, BRONZE).get(_APPLICATION)
        if owner != application:
            raise LakeError(
                root,
                f"is of the application {owner!r}, not {application!r}: each application needs a "
                "folder of its own, give another --to",
            )
    missing = [
        t for t in TABLES.values() if not is_folder(spark, f"{path(root, t.name)}/_delta_log")
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda table: _create(spark, root, table, application), missing))


def _create(spark: SparkSession, root: str, table: LakeTable, application: str) -> None:
    properties = _PROPERTIES | {_APPLICATION: application}
    if table.skip_by:
        properties["delta.dataSkippingStatsColumns"] = ",".join(table.skip_by)
    maker = DeltaTable.createIfNotExists(spark).location(path(root, table.name))
    maker = maker.addColumns(table.schema).partitionedBy(*table.partitioned_by)
    for name, value in properties.items():
        maker = maker.property(name, value)
    maker.execute()


def _properties(spark: SparkSession, root: str, table: LakeTable) -> dict[str, str]:
    detail = DeltaTable.forPath(spark, path(root, table.name)).detail()
    return dict(detail.select("properties").collect()[0][0])


def append(rows: DataFrame, root: str, table: LakeTable, stream: str, batch: int) -> None:
    """Add a batch's rows to a table, once.

    Args:
        rows: columns that the table does not have yet are added to it.
        root: the lake's folder or URI.
        table: where to.
        stream: whose batch it is.
        batch: its number; a batch that the table has is not written again.
    """
    (
        rows.write.format("delta")
        .mode("append")
        .option("mergeSchema", "true")
        .option("txnAppId", transaction(stream))
        .option("txnVersion", batch)
        .save(path(root, table.name))
    )


def transaction(stream: str) -> str:
    """Delta's name of what numbers a stream's batches."""
    return f"ringfaust.lake/{stream}"


def compact(spark: SparkSession, root: str, tables: Collection[str]) -> None:
    """Put the small files of each folder together. Readers and streams see the same rows."""
    for table in tables:
        DeltaTable.forPath(spark, path(root, table)).optimize().executeCompaction()


def merge(
    rows: DataFrame,
    root: str,
    table: LakeTable,
    on: str,
    *,
    update: Mapping[str, str] | None = None,
    only: str = "true",
) -> None:
    """Bring rows into a table by what identifies them.

    Args:
        rows: new and changed ones, `s` in the conditions; each identity once, all columns.
        root: the lake's folder or URI.
        table: where to, `t` in the conditions.
        on: the identity, and what of the table has to be looked at.
        update: new values of a row that is there, by column; None: it stays as it is.
        only: a row that is there changes only if this holds.
    """
    target = DeltaTable.forPath(rows.sparkSession, path(root, table.name)).alias("t")
    merging = target.merge(rows.select(table.schema.names).alias("s"), on)
    if update is not None:
        merging = merging.whenMatchedUpdate(only, dict(update))
    merging.whenNotMatchedInsertAll().execute()


class Marks:
    """How far a stream of the lake has come: its last batch, and a mark for each partition.

    A small file, written as the last of a batch. So a batch that is done again sees what it saw at
    first: the marks of the batch before.
    """

    def __init__(self, spark: SparkSession, root: str, stream: str) -> None:
        self._files = _Files(spark, f"{root.rstrip('/')}/state/marks/{stream}")
        self.batch = max(self._files.numbers(), default=-1)
        """The last one that is done; -1: none."""
        self.by_partition: dict[tuple[str, int], int] = {}
        """What is not beyond it may have been told before, by topic and partition."""
        if self.batch >= 0:
            rows = json.loads(self._files.read(self.batch))
            self.by_partition = {(topic, partition): mark for topic, partition, mark in rows}

    def raise_to(self, topic: str, partition: int, mark: int) -> None:
        """This was told."""
        key = (topic, partition)
        self.by_partition[key] = max(mark, self.by_partition.get(key, mark))

    def save(self, batch: int) -> None:
        """The batch is done."""
        rows = [(*key, mark) for key, mark in sorted(self.by_partition.items())]
        self._files.write(batch, json.dumps(rows))
        self.batch = batch


class _Files:
    """Numbered text files of a folder, on whatever file system Spark writes tables to."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        # Hadoop's own classes: there is no other way to where the tables are.
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001
        self._folder = self._jvm.org.apache.hadoop.fs.Path(folder)
        self._fs = self._folder.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001

    def numbers(self) -> list[int]:
        """Of the files that were written whole."""
        if not self.is_there():
            return []
        names = [status.getPath().getName() for status in self._fs.listStatus(self._folder)]
        return [int(name) for name in names if name.isdecimal()]

    def is_there(self) -> bool:
        """Is there such a folder?"""
        return bool(self._fs.exists(self._folder))

    def local(self) -> str | None:
        """The folder's path; None: it is not on a local file system."""
        if self._fs.getScheme() != "file":
            return None
        return str(self._fs.makeQualified(self._folder).toUri().getPath())

    def read(self, number: int) -> str:
        stream = self._fs.open(self._at(str(number)))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, number: int, text: str) -> None:
        """Write it whole or not at all, and forget all but the one before."""
        new, place = self._at(f".new-{number}"), self._at(str(number))
        stream = self._fs.create(new, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._fs.delete(place, False)
        self._fs.rename(new, place)
        for old in self.numbers():
            if old < number - 1:
                self._fs.delete(self._at(str(old)), False)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)


def is_folder(spark: SparkSession, folder: str) -> bool:
    """Is there such a folder, on whatever file system it would be?"""
    return _Files(spark, folder).is_there()


def local_folder(spark: SparkSession, root: str) -> str | None:
    """The lake's path for those who open files themselves; None: it is not a local file system."""
    return _Files(spark, root).local()
