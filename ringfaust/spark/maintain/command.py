"""`ringfaust spark maintain`: delete old days, cluster past ones, and vacuum, table by table."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from functools import partial

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from ringfaust.config import WorkerConfig
from ringfaust.spark.audit.balance import ClosedDays, TopicPositions
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake.store import LakeError, application_of, commit, compact, create_tables
from ringfaust.spark.lake.tables import BRONZE, TABLES, TIMES, LakeTable, path, read
from ringfaust.spark.maintain import retention
from ringfaust.spark.options import MaintainOptions
from ringfaust.spark.session import open_session, set_unless_given
from ringfaust.terminal import Terminal

FILE_BYTES = 128 << 20
"""The size of a clustered file: the smaller, the less a reader of one queue reads."""
TableSize = tuple[int, int, int]
"""Of a table: how many files are part of it, their size, and the size of all in its folder."""
_SETTINGS = {
    "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
    # The request has its own lower bound.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    # Vacuum lists files in so many tasks. Spark's default is 10,000, for each table.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
    **TIMES,
}
_NEVER_REWRITTEN = ("queues", "scheduled")
"""They are small, and the stream replaces their rows in each batch."""


def run(options: MaintainOptions) -> None:
    """Maintain a lake and print what that changed.

    The lake's streams may run at the same time.

    Raises:
        LakeError: there is no such lake.
        BadSetting: an option cannot be parsed, or a retention would delete what the lake still
            needs, or the audit has not closed. No row was changed.
        CannotAudit: the last closed day was changed.
        JobFailed: Spark ended the job with an error.
    """
    days = retention.read_days(options.retention or ())
    kept_hours = retention.read_hours(options.deleted_file_retention)
    console = Terminal(stderr=True)
    with console.status("starting Spark") as status, brief_errors():
        session = open_session("ringfaust maintain", options.master, runs_python=False).newSession()
        set_unless_given(session, _SETTINGS)
        application = application_of(session, options.lake)
        if application is None:
            text = "does not exist: use the folder that `ringfaust spark lake` writes"
            raise LakeError(options.lake, text)
        create_tables(session, options.lake, application)  # those newer than the lake
        used = retention.used_days(session, options.lake, WorkerConfig(application=application))
        retention.check(used, days)
        closed = _closed(session, options.lake, days)
        sizes = {}
        for table in TABLES.values():
            status.update(f"maintaining {table.name}")
            delta = DeltaTable.forPath(session, path(options.lake, table.name))
            before = _size(session, options.lake, table)
            if kept_days := days.get(table.name):
                old = retention.old_rows(table, kept_days, used[table.name], closed)
                delta.delete(old)
            first = used[table.name].first() if table.name in used else None
            if table.cluster_by and first:
                cluster(session, options.lake, table, first)
            elif table.name not in _NEVER_REWRITTEN:
                past = f"{table.day} < DATE '{first}'" if first else None
                compact(session, options.lake, table, past)
            delta.vacuum(kept_hours)
            sizes[table.name] = (before, _size(session, options.lake, table))
        unclosed = 0
        if of_bronze := days.get(BRONZE.name):
            unclosed = retention.count_unclosed(session, options.lake, of_bronze, closed)
    print_summary(Terminal(), sizes, unclosed)


def _closed(spark: SparkSession, lake: str, days: Mapping[str, int]) -> TopicPositions:
    """Up to which offsets the audit has closed the topics, if bronze has a retention."""
    if BRONZE.name not in days:
        return {}
    closed = ClosedDays(spark, lake).read_to()
    retention.check_closed(spark, lake, days[BRONZE.name], closed)
    return closed


def _size(spark: SparkSession, lake: str, table: LakeTable) -> TableSize:
    folder = path(lake, table.name)
    detail = DeltaTable.forPath(spark, folder).detail().select("numFiles", "sizeInBytes")
    files, size_bytes = detail.collect()[0]
    return files, size_bytes, HadoopFolder(spark, folder).stored_bytes()


def cluster(spark: SparkSession, root: str, table: LakeTable, before: date) -> None:
    """Sort the rows of days before one that may still change into files by `cluster_by`.

    Readers of one queue then open few of them. The streams add files for today. A day is rewritten
    once it is over, and again only if rows were added to it since.
    """
    marks = HadoopFolder(spark, f"{root.rstrip('/')}/state/clustered")
    done: dict[str, str] = json.loads(marks.read_text(table.name) or "{}")
    for day, digest in _digests(spark, root, table, before).items():
        if done.get(day) != digest:
            optimize = DeltaTable.forPath(spark, path(root, table.name)).optimize()
            of_day = optimize.where(f"{table.day} = DATE '{day}'")
            commit(partial(of_day.executeZOrderBy, *table.cluster_by))
    marks.write_text(table.name, json.dumps(_digests(spark, root, table, before)))


def _digests(spark: SparkSession, root: str, table: LakeTable, before: date) -> dict[str, str]:
    """By day, a digest of the names of its files."""
    assert table.day, "a clustered table is partitioned by day"
    files = read(spark, root, table.name).where(F.col(table.day) < F.lit(before)).inputFiles()
    by_day: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        day = re.search(rf"/{table.day}=(\d{{4}}-\d\d-\d\d)/", file)
        if day:
            by_day[day[1]].append(file.rpartition("/")[2])
    return {
        day: hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]
        for day, names in sorted(by_day.items())
    }


def print_summary(
    console: Console, sizes: Mapping[str, tuple[TableSize, TableSize]], unclosed: int
) -> None:
    """Print files, size and stored bytes of each table, before and after.

    `unclosed` is the number of records of bronze that stay until the audit has closed them.
    """
    shown = Table("table", box=None, pad_edge=False)
    for name in ("files", "after", "size", "after", "stored", "after"):
        shown.add_column(name, justify="right", no_wrap=True)
    for table, (before, after) in sizes.items():
        shown.add_row(
            table,
            f"{before[0]:,}", f"{after[0]:,}", decimal(before[1]), decimal(after[1]),
            decimal(before[2]), decimal(after[2]),
        )  # fmt: skip
    console.print(shown)
    freed = sum(before[2] - after[2] for before, after in sizes.values())
    if freed >= 0:
        console.print(f"{decimal(freed)} of storage freed.", highlight=False)
    else:
        console.print(
            f"{decimal(-freed)} more stored: vacuum deletes the files that were replaced once "
            "--deleted-file-retention has passed.",
            highlight=False,
        )
    if unclosed:
        console.print(
            f"bronze keeps older records that no closed day of the audit contains: {unclosed:,}. "
            "Close days with `ringfaust spark audit --lake`. Those that no worker has read, such "
            "as the last ones of a removed route, stay.",
            highlight=False,
        )
