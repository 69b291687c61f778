"""Creating the lake's tables, and writing to them such that each batch counts once.

Every append names its stream and batch as Delta's transaction (`txnAppId`, `txnVersion`). A batch
that is repeated after a crash changes nothing in tables that already have it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tenacity import retry, retry_if_exception, stop_after_attempt

from ringfaust.errors import RingfaustError
from ringfaust.spark.errors import SPARK_ERRORS
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake import comments
from ringfaust.spark.lake.tables import BRONZE, MESSAGES, TABLES, LakeTable, path

log = logging.getLogger(__name__)

GOLD = "gold"
"""The stream of the gold tables: batches of the stream `events`, some time later."""
ALL = "true"
"""Replace all rows of a table."""
_APPLICATION = "ringfaust.application"
_PROPERTIES = {"delta.checkpointInterval": "20"}
"""So that readers without Spark open few files of the log."""
_ATTEMPTS = 20
"""Each is lost to one commit of someone else, such as `ringfaust spark maintain`."""
_CONFLICT = "io.delta.exceptions.Concurrent"
"""How the names of Delta's conflicts begin."""


class LakeError(RingfaustError):
    """The lake cannot be used as it is. The text says what to do."""

    def __init__(self, root: str, text: str) -> None:
        super().__init__(f"the lake at {root} {text}")


def create_tables(spark: SparkSession, root: str, application: str) -> None:
    """Create the tables that do not exist.

    Raises:
        LakeError: the lake belongs to another application. Partitions, steps and queues of the two
            would be mixed up. Or its gold tables are those of an older version.
    """
    owner = application_of(spark, root)
    if owner is not None and owner != application:
        raise LakeError(
            root,
            f"belongs to the application {owner!r}, not {application!r}: each application "
            "needs a folder of its own, give another --to",
        )
    _check_gold(spark, root)
    missing = [
        table
        for table in TABLES.values()
        if not HadoopFolder(spark, f"{path(root, table.name)}/_delta_log").exists()
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda table: _create(spark, root, table, application), missing))


def _check_gold(spark: SparkSession, root: str) -> None:
    """Raise LakeError for gold of a version that wrote messages with each batch."""
    if DeltaTable.isDeltaTable(spark, path(root, MESSAGES.name)):
        columns = DeltaTable.forPath(spark, path(root, MESSAGES.name)).toDF().columns
        if "batch" not in columns:
            raise LakeError(
                root,
                "has gold tables of an older version: delete its folders gold and "
                "state/marks/gold, and start again: gold is then rebuilt from silver",
            )


def _create(spark: SparkSession, root: str, table: LakeTable, application: str) -> None:
    properties = _PROPERTIES | {_APPLICATION: application}
    if table.skip_by:
        properties["delta.dataSkippingStatsColumns"] = ",".join(table.skip_by)
    builder = DeltaTable.createIfNotExists(spark).location(path(root, table.name))
    builder = builder.addColumns(comments.described(table)).comment(comments.TABLES[table.name])
    builder = builder.partitionedBy(*table.partitioned_by)
    for name, value in properties.items():
        builder = builder.property(name, value)
    builder.execute()


def application_of(spark: SparkSession, root: str) -> str | None:
    """The application that a lake belongs to; None if there is no lake."""
    if not DeltaTable.isDeltaTable(spark, path(root, BRONZE.name)):
        return None
    detail = DeltaTable.forPath(spark, path(root, BRONZE.name)).detail()
    return str(detail.select("properties").collect()[0][0].get(_APPLICATION, ""))


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, SPARK_ERRORS) and _CONFLICT in str(error)


@retry(
    retry=retry_if_exception(_is_conflict),
    stop=stop_after_attempt(_ATTEMPTS),
    before_sleep=lambda _: log.info("the lake was changed meanwhile; changing it again"),
    reraise=True,
)
def commit(change: Callable[[], object]) -> None:
    """Change a table; again, if another run or `ringfaust spark maintain` commits first."""
    change()


def append(
    rows: DataFrame, root: str, table: LakeTable, stream: str, batch: int, *, replace: str = ""
) -> None:
    """Append a batch's rows to a table, once.

    If it is committed again, Delta checks again whether the table has the batch, and which files to
    replace.

    Columns that the table lacks are added to it. `replace` is a condition: the same commit removes
    existing rows for which it holds.
    """
    writer = (
        rows.write.format("delta")
        .mode("overwrite" if replace else "append")
        .option("mergeSchema", "true")
        .option("txnAppId", f"ringfaust.lake/{stream}")
        .option("txnVersion", batch)
    )
    if replace:
        writer = writer.option("replaceWhere", replace)
    commit(lambda: writer.save(path(root, table.name)))


def compact(spark: SparkSession, root: str, table: LakeTable, where: str | None = None) -> None:
    """Combine the small files of a table, or of its days for which a condition holds.

    Readers and streams see the same rows.
    """
    optimize = DeltaTable.forPath(spark, path(root, table.name)).optimize()
    commit((optimize.where(where) if where else optimize).executeCompaction)


class LakeProgress:
    """How far a stream of the lake has come.

    It is stored in a small file, which is the last thing that a batch writes.
    """

    def __init__(self, spark: SparkSession, root: str, stream: str) -> None:
        self._folder = HadoopFolder(spark, f"{root.rstrip('/')}/state/marks/{stream}")
        self.batch = max(self._folder.numbers(), default=-1)
        """The last completed batch; -1: none."""
        self.note = (self._folder.read_text(str(self.batch)) or "") if self.batch >= 0 else ""
        """What that batch leaves for the next one."""

    def complete(self, batch: int, note: str = "") -> None:
        """Complete a batch. The files of all batches but this and the one before are deleted."""
        self._folder.write_text(str(batch), note)
        self.batch, self.note = batch, note
        for old in self._folder.numbers():
            if old < batch - 1:
                self._folder.delete(str(old))


def append_gold(
    spark: SparkSession, root: str, query: str, table: LakeTable, batch: int, *, replace: str = ""
) -> None:
    """Append the rows of a query to a table of gold; as `append`."""
    rows = spark.sql(query).select(table.schema.names)
    append(rows, root, table, GOLD, batch, replace=replace)
