"""`ringfaust spark maintain`: delete old days, cluster past ones, and vacuum, table by table."""

from __future__ import annotations

from collections.abc import Mapping

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.config import WorkerConfig
from ringfaust.spark.audit.balance import ClosedDays, TopicPositions
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake.store import LakeError, application_of, compact, create_tables
from ringfaust.spark.lake.tables import BRONZE, TABLES, LakeTable, path
from ringfaust.spark.maintain import retention
from ringfaust.spark.maintain.clustering import FILE_BYTES, cluster
from ringfaust.spark.maintain.show import TableSize, print_summary
from ringfaust.spark.options import MaintainOptions
from ringfaust.spark.session import open_session, set_unless_given
from ringfaust.terminal import Terminal

_SETTINGS = {
    "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
    # The request has its own lower bound.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    # Vacuum lists files in so many tasks. Spark's default is 10,000, for each table.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
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
        session = open_session("ringfaust maintain", options.master).newSession()
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
                compact(session, options.lake, table, first)
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
