"""Every use of an API that PySpark does not document. tests/spark/test_vendor.py pins each one.

Executors import this module too, so it imports nothing but PySpark and PyArrow.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

COLUMN_PRUNING = "org.apache.spark.sql.catalyst.optimizer.ColumnPruning"
"""Name of the optimizer rule that drops unused columns."""
_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(types.to_arrow_schema).parameters else {}
)
"""Spark 4.2 asks for the time zone of timestamps; for 4.0 it is UTC."""
_BATCH_ID = "streaming.sql.batchId"


from_arrow_schema = types.from_arrow_schema
"""The reverse of `to_arrow_schema`."""


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """The schema as Arrow's, with timestamps in UTC."""
    return types.to_arrow_schema(schema, **_UTC)


def jvm(spark: SparkSession) -> Any:
    """The driver's JVM: the only way from Python to Hadoop's file systems."""
    return spark._jvm  # noqa: SLF001


def hadoop_configuration(spark: SparkSession) -> Any:
    """Hadoop's configuration, with the credentials of object stores."""
    return spark._jsc.hadoopConfiguration()  # noqa: SLF001


def java_array(spark: SparkSession, kind: Any, *items: Any) -> Any:
    """An array of a Java class, for a method with a variable number of arguments."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    array = gateway.new_array(kind, len(items))
    for index, item in enumerate(items):
        array[index] = item
    return array


def is_deterministic(frame: DataFrame) -> bool:
    """Whether Spark considers all expressions of a query deterministic."""
    return bool(frame._jdf.queryExecution().analyzed().deterministic())  # noqa: SLF001


def current_batch() -> int:
    """Number of the micro-batch that the current task belongs to.

    Spark's documented API does not give it to a stateful operator.
    """
    context = TaskContext.get()
    number = context.getLocalProperty(_BATCH_ID) if context else None
    assert number is not None, "a stateful operator runs in a batch of a query"
    return int(number)
