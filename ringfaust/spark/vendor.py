"""Every use of an API that PySpark does not document. tests/spark/test_vendor.py pins each one.

Executors import this module too, so it imports nothing but PySpark.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "COLUMN_PRUNING",
    "current_batch",
    "from_arrow_schema",
    "hadoop_configuration",
    "is_deterministic",
    "java_array",
    "jvm",
    "stop_between_batches",
    "to_arrow_schema",
]

COLUMN_PRUNING = "org.apache.spark.sql.catalyst.optimizer.ColumnPruning"
"""Name of the optimizer rule that drops unused columns."""
_BATCH_ID = "streaming.sql.batchId"
_POLL_MS = 1_000


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


def stop_between_batches(query: StreamingQuery, timeout_s: float) -> None:
    """Stop a query after its current micro-batch.

    `StreamingQuery.stop` cuts the current batch off; it would be repeated, and its output would
    appear twice. Where one batch follows the other without a pause, no moment between two can be
    observed from outside. So this sets the query's state to TERMINATED, as Spark itself does when
    it ends a query: the query then ends when its batch is done, before the batch's work begins, or
    at its next trigger.

    Args:
        query: the running query.
        timeout_s: after this many seconds the batch is cut off.
    """
    running: Any = query._jsq.streamingQuery()  # noqa: SLF001
    state = running.state()
    kind = state.get().getClass()  # TERMINATED is in the same package, which depends on the version
    terminated = kind.getClassLoader().loadClass(f"{kind.getPackageName()}.TERMINATED$")
    state.set(terminated.getField("MODULE$").get(None))
    deadline = time.monotonic() + timeout_s
    while running.queryExecutionThread().isAlive() and time.monotonic() < deadline:
        running.queryExecutionThread().join(_POLL_MS)
        if not query.status["isTriggerActive"]:
            break  # the next trigger is far off
    query.stop()
