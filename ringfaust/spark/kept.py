"""Rows that Spark computes only once for several queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def kept(rows: DataFrame, *, on_disk: bool = False) -> Iterator[DataFrame]:
    """Keep rows in memory, and what does not fit on disk; or all of them on disk."""
    rows.persist(StorageLevel.DISK_ONLY if on_disk else StorageLevel.MEMORY_AND_DISK_DESER)
    try:
        yield rows
    finally:
        rows.unpersist()
