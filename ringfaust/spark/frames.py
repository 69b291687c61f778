"""DataFrames: kept for several queries, spread over tasks, and as Arrow's batches in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

_CANDIDATES = 50
"""Numbers tried as shuffle keys, per partition."""


@contextmanager
def kept(rows: DataFrame, *, on_disk: bool = False) -> Iterator[DataFrame]:
    """Compute rows only once for several queries.

    They are kept in memory, and on disk what does not fit; or all of them on disk.
    """
    rows.persist(StorageLevel.DISK_ONLY if on_disk else StorageLevel.MEMORY_AND_DISK_DESER)
    try:
        yield rows
    finally:
        rows.unpersist()


def shuffle_keys(spark: SparkSession, partitions: int, tasks: int) -> list[int]:
    """A group key for each partition, such that every task gets equally many partitions.

    Spark assigns keys to tasks by a hash. With the partition number as the key some tasks would get
    three partitions and others none. So each partition takes the next number whose hash falls to
    the wanted task.
    """
    numbers = spark.range(_CANDIDATES * partitions).select(F.col("id").cast("int"))
    hashed = numbers.select("id", F.pmod(F.hash("id"), F.lit(tasks)).alias("task")).collect()
    free: dict[int, list[int]] = {}
    for number, task in hashed:
        free.setdefault(task, []).append(number)
    return [free[partition % tasks][partition // tasks] for partition in range(partitions)]


def shuffle_key_of(keys: Sequence[int], partition: Column | str) -> Column:
    """The group key of the partition that a column names.

    The keys are a text, because an array of literals would be an expression for each partition.
    """
    return F.get(F.split(F.lit(" ".join(map(str, keys))), " ").cast("array<int>"), partition)


def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of all batches, as a task of `mapInArrow` gets them."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def make_batch(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these rows, if there are any."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
