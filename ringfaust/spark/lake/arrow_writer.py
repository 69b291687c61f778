"""The Arrow writer: turns a batch of plain records in bronze into transitions.

Python tasks read the files of bronze, parse the lines and write the columns with Arrow, in a third
of the time that Spark's own parser and writer take. It needs a lake on a local file system and
plain records (`spark.arrow_lines`). Any other batch goes through the Spark writer (`transitions`),
which produces the same rows.
"""

from __future__ import annotations

from deltalake import DeltaTable, Transaction
from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake.commits import commit, is_supported
from ringfaust.spark.lake.day_files import write_day_files
from ringfaust.spark.lake.parquet_files import discard
from ringfaust.spark.lake.store import transaction
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS, path


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
    if lake is None or not (is_supported(lake, BRONZE) and is_supported(lake, TRANSITIONS)):
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
    commit(folder, TRANSITIONS, files, done=Transaction(transaction(stream), batch))
    return True
