"""Read the source of a backfill so that no value changes, and say which rows cannot be kept."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.backfill.csv_source import read_csv
from ringfaust.spark.backfill.errors import CannotBackfill, first_line
from ringfaust.spark.backfill.json_source import read_json
from ringfaust.spark.backfill.parquet_source import read_parquet
from ringfaust.spark.errors import SPARK_ERRORS


class Format(StrEnum):
    """The format of a source."""

    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    CSV = "csv"


def read_source(spark: SparkSession, path: str, kind: Format) -> DataFrame:
    """The rows of a file, folder, pattern or Delta table (also `PATH@v7`).

    A row that cannot be kept has the column `FAULT`; a row of JSON has its `LINE` as well.

    Raises:
        CannotBackfill: the source does not exist or cannot be read.
    """
    # Else `day=007` in the name of a folder would become 7.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        match kind:
            case Format.PARQUET:
                return read_parquet(spark, path)
            case Format.JSON:
                return read_json(spark, path)
            case Format.CSV:
                return read_csv(spark, path)
            case Format.DELTA:
                return spark.read.format("delta").load(path)
    except SPARK_ERRORS as error:
        raise CannotBackfill("SOURCE", f"{path!r} cannot be read: {first_line(error)}") from None
