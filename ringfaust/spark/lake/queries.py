"""Gold's queries: what a batch's queries refer to by name, and how their results are written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.lake.store import GOLD, append, kept
from ringfaust.spark.lake.tables import LakeTable, last_closing, path, read, sql_name

ALL = "true"
"""Replace all rows of a table."""


class GoldQueries:
    """Runs the queries of one batch. Spark's executors do their work."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self._root = spark, root
        self._kept = ExitStack()
        self.name_of = partial(sql_name, root)
        self.last_closing = partial(last_closing, spark, root)

    def has_files(self, table: str) -> bool:
        """Whether a table has rows. It is known to Delta, unlike their number."""
        about = DeltaTable.forPath(self._spark, path(self._root, table)).detail()
        return bool(about.select("numFiles").collect()[0][0])

    def define_lines(self, batch: int, lines: DataFrame | None) -> None:
        """Let queries refer to a batch's transitions as `lines`: these, or those in the table."""
        if lines is None:
            lines = read(self._spark, self._root, "transitions").where(f"batch = {batch}")
        lines.createOrReplaceTempView("lines")

    def keep(self, name: str, query: str) -> None:
        """Let queries refer to this query by a name, and compute it only once."""
        rows = self._kept.enter_context(kept(self._spark.sql(query)))
        rows.createOrReplaceTempView(name)

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        """The rows of a small result."""
        return self._spark.sql(query).collect()

    def append(
        self, query: str, table: LakeTable, batch: int, *, replace: str | None = None
    ) -> None:
        """Append rows, unless the table has the batch already.

        `replace` is a condition: the same commit removes existing rows for which it holds.
        """
        rows = self._spark.sql(query).select(table.schema.names)
        append(rows, self._root, table, GOLD, batch, replace=replace)

    def close(self) -> None:
        """Forget what was kept."""
        self._kept.close()
