"""Transitions → gold. Each batch is counted by minute; messages wait for the end of the day.

`queue_minutes` and `queues` are merged with every batch. `messages` and `deliveries` are brought up
to date by a closing (`lake.views`), in the first batch that contains another day. So the work
depends on the batch, on the day and on what the queues hold, not on the size of the tables.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake import minutes
from ringfaust.spark.lake.store import GOLD, Progress, append
from ringfaust.spark.lake.tables import DELETIONS, TABLES, last_closing, read, sql_name
from ringfaust.spark.lake.views import ENDED_ON, closing


def catch_up(spark: SparkSession, root: str, batch: int) -> None:
    """Process all batches up to `batch` that gold does not have yet.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        batch: the last batch of `transitions`.
    """
    progress = Progress(spark, root, GOLD)
    for number in range(progress.batch + 1, batch + 1):
        progress.complete(number, _process(spark, root, number, progress.note))


def _process(spark: SparkSession, root: str, batch: int, day: str) -> str:
    """Process a batch. `day` is the last day before it; returns the last day after it."""
    lines = read(spark, root, "transitions").where(F.col("batch") == batch)
    summary = minutes.write(spark, root, lines, batch)
    if summary is None:
        return day
    if summary.deletions:
        deleted = lines.where("event = 'deleted'").select(DELETIONS.schema.names)
        append(deleted, root, DELETIONS, GOLD, batch)
    if summary.last_day != (day or summary.first_day):
        close(spark, root, batch)
    return summary.last_day


def close(spark: SparkSession, root: str, batch: int) -> None:
    """Bring messages and deliveries up to a batch.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        batch: a batch of `transitions` whose deletions are stored.
    """
    for table, ended_on in ENDED_ON.items():
        after = last_closing(spark, root, table)
        if after < batch:
            rows = spark.sql(closing(table, partial(sql_name, root), after, batch))
            rows = rows.select(TABLES[table].schema.names)
            replaced = f"{ended_on} IS NULL"
            append(rows, root, TABLES[table], GOLD, batch, replace=replaced)
