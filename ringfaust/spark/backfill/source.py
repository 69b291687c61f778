"""Read what is to be backfilled, without losing the lines that cannot be read."""

from __future__ import annotations

from enum import StrEnum

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from ringfaust.spark.backfill.errors import CannotBackfill

CORRUPT = "_corrupt_record"
"""The column with the text of a line that is no JSON, or no CSV of the header's columns."""

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What a wrong source or expression comes as: the second is for what pyspark has no class for."""


class Format(StrEnum):
    """What a source is."""

    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    CSV = "csv"


def read_source(spark: SparkSession, path: str, kind: Format) -> DataFrame:
    """The rows of a file, folder, pattern or Delta table (also `PATH@v7`).

    CSV has a header, and all of its columns are text: nothing is guessed, so `007` stays `007`.
    JSON is one object a line. Lines that cannot be read come with `CORRUPT` set.

    Raises:
        CannotBackfill: there is no such source.
    """
    reader = spark.read.format(kind.value).option("columnNameOfCorruptRecord", CORRUPT)
    try:
        if kind is not Format.CSV:
            return reader.load(path)
        # Without pruning: a line is judged by all of its columns, whichever are asked for.
        reader = reader.options(header="true", columnPruning="false")
        fields = [*reader.load(path).schema.fields, StructField(CORRUPT, StringType())]
        return reader.schema(StructType(fields)).load(path)
    except SPARK_ERRORS as error:
        raise CannotBackfill("SOURCE", f"{path!r} cannot be read: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """Spark's own words, without its stack and hints on settings."""
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return str(text).strip().partition("\n")[0]
