"""The Arrow writer: turns a batch of plain records in bronze into transitions.

Python tasks read the files of bronze, parse the lines and write the columns with Arrow, in a third
of the time that Spark's own parser and writer take. It needs a lake on a local disk or S3 and plain
records (`spark.arrow_lines`). Any other batch goes through the Spark writer (`transitions`), which
produces the same rows.
"""

from __future__ import annotations

from deltalake import Transaction
from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.lake.commits import all_supported, commit, has_batch
from ringfaust.spark.lake.day_files import write_day_files
from ringfaust.spark.lake.parquet_files import discard
from ringfaust.spark.lake.storage import find_storage
from ringfaust.spark.lake.store import transaction
from ringfaust.spark.lake.tables import BRONZE, TRANSITIONS


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
    storage = find_storage(spark, root)
    if storage is None or not all_supported(storage, (BRONZE, TRANSITIONS)):
        return False
    done = Transaction(transaction(stream), batch)
    table = storage.open(TRANSITIONS)
    if has_batch(table, done):
        return True
    sources = [name.rpartition(f"/{BRONZE.path}/")[2] for name in bronze.inputFiles()]
    tasks = spark.sparkContext.parallelize(sources, max(1, len(sources)))
    parts = tasks.map(lambda source: write_day_files(storage, source, batch)).collect()
    files = [file for part in parts if part is not None for file in part]
    if None in parts:
        discard(storage.files(TRANSITIONS), files)
        return False
    commit(table, TRANSITIONS, files, done)
    return True
