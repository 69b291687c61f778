"""Records with times that are none, because a producer took another unit."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from ringfaust.spark.lake.store import append
from ringfaust.spark.lake.stream import _bronze
from ringfaust.spark.lake.tables import BRONZE
from ringfaust.spark.lake.with_duckdb import open_duckdb
from tests.spark.batched_lake import BatchedLake

NOW = 1_700_000_000_000


def test_a_time_that_no_calendar_has_does_not_close_the_table_to_python(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = BatchedLake(spark, tmp_path / "lake")
    rows = lake.spark.createDataFrame([(NOW,), (NOW * 1_000,), (-NOW * 1_000,)], "ms long")
    rows = rows.selectExpr(
        "'in' topic", "0 partition", "ms offset", "timestamp_millis(ms) timestamp",
        "0 timestampType", "binary('k') key", "binary('v') value",
        "cast(null as array<struct<key: string, value: binary>>) headers",
    )  # fmt: skip
    append(_bronze(rows, 0), lake.root, BRONZE, "inputs", 0)
    asked = "SELECT date, epoch_ms(timestamp) FROM bronze ORDER BY date"
    assert open_duckdb(lake.root).execute(asked).fetchall() == [
        (date(1, 1, 1), -NOW * 1_000),
        (date(2023, 11, 14), NOW),
        (date(9999, 12, 31), NOW * 1_000),
    ]
