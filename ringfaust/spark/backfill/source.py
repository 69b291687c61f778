"""Read the source of a backfill, and keep the lines that cannot be parsed."""

from __future__ import annotations

from enum import StrEnum

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from ringfaust.spark.backfill.errors import CannotBackfill

CORRUPT = "_corrupt_record"
"""The column with the text of a line that is not valid JSON, or not CSV that fits the header."""

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""Errors of a wrong source or expression; the second covers those without a class in PySpark."""


class Format(StrEnum):
    """The format of a source."""

    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    CSV = "csv"


def read_source(spark: SparkSession, path: str, kind: Format) -> DataFrame:
    """The rows of a file, folder, pattern or Delta table (also `PATH@v7`).

    CSV has a header, and all columns are text: types are not inferred, so `007` stays `007`. JSON
    is one object per line. Lines that cannot be parsed have `CORRUPT` set.

    Raises:
        CannotBackfill: the source does not exist or cannot be read.
    """
    reader = spark.read.format(kind.value).option("columnNameOfCorruptRecord", CORRUPT)
    try:
        if kind is not Format.CSV:
            return reader.load(path)
        # Without pruning, so that all columns decide whether a line is valid.
        reader = reader.options(header="true", columnPruning="false")
        fields = [*reader.load(path).schema.fields, StructField(CORRUPT, StringType())]
        return reader.schema(StructType(fields)).load(path)
    except SPARK_ERRORS as error:
        raise CannotBackfill("SOURCE", f"{path!r} cannot be read: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """Spark's message, without its stack trace and hints."""
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return str(text).strip().partition("\n")[0]
