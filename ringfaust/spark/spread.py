"""Keys that bring rows to the wanted tasks, although Spark assigns keys to tasks by a hash."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

_CANDIDATES = 50
"""Numbers tried as shuffle keys, per partition."""


def shuffle_keys(spark: SparkSession, partitions: int, tasks: int) -> list[int]:
    """A group key for each partition, such that every task gets equally many partitions.

    With the partition number as the key some tasks would get three partitions and others none. So
    each partition takes the next number whose hash falls to the wanted task.
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
