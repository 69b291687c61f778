"""`ringfaust spark maintain`: delete old days, cluster past ones, and vacuum, table by table."""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console

from ringfaust.config import WorkerConfig
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake.store import LakeError, application_of, compact
from ringfaust.spark.lake.tables import TABLES, LakeTable, path
from ringfaust.spark.maintain import retention
from ringfaust.spark.maintain.clustering import FILE_BYTES, cluster
from ringfaust.spark.maintain.request import MaintainRequest
from ringfaust.spark.maintain.show import MaintainedTable, TableSize, print_summary
from ringfaust.spark.session import open_session

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


def run(request: MaintainRequest, master: str | None) -> None:
    """Maintain a lake and print what that changed.

    The lake's streams may run at the same time.

    Args:
        request: result of `read_options`.
        master: as for `spark-submit --master`.

    Raises:
        LakeError: there is no such lake.
        BadSetting: a retention would delete what the lake still needs. Nothing was changed.
        JobFailed: Spark ended the job with an error.
    """
    console = Console(stderr=True)
    with console.status("starting Spark") as status, brief_errors():
        session = open_session("ringfaust maintain", master).newSession()
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        used = _used_days(session, request.lake)
        retention.check(used, request.retention)
        maintained = []
        for table in TABLES.values():
            status.update(f"maintaining {table.name}")
            maintained.append(_maintain(session, request, table, used.get(table.name)))
    print_summary(Console(), maintained)


def _used_days(spark: SparkSession, lake: str) -> dict[str, retention.UsedDays]:
    application = application_of(spark, lake)
    if application is None:
        raise LakeError(lake, "does not exist: use the folder that `ringfaust spark lake` writes")
    return retention.used_days(spark, lake, WorkerConfig(application=application))


def _maintain(
    spark: SparkSession,
    request: MaintainRequest,
    table: LakeTable,
    used: retention.UsedDays | None,
) -> MaintainedTable:
    """Maintain a table. `used`: None if the table has no days."""
    lake = request.lake
    before = _size(spark, lake, table)
    if used and table.name in request.retention:
        retention.delete_days(spark, lake, table, request.retention[table.name], used)
    if table.cluster_by and used:
        cluster(spark, lake, table, used.first())
    elif table.name not in _NEVER_REWRITTEN:
        compact(spark, lake, table, used.first() if used else None)
    target = DeltaTable.forPath(spark, path(lake, table.name))
    target.vacuum(request.deleted_file_retention_hours)
    return MaintainedTable(table.name, before, _size(spark, lake, table))


def _size(spark: SparkSession, lake: str, table: LakeTable) -> TableSize:
    folder = path(lake, table.name)
    detail = DeltaTable.forPath(spark, folder).detail().select("numFiles", "sizeInBytes")
    files, size_bytes = detail.collect()[0]
    return TableSize(files, size_bytes, HadoopFolder(spark, folder).stored_bytes())
