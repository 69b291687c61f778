"""Gold's queries on Spark, for lakes on any storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.lake.engine import ALL
from ringfaust.spark.lake.store import GOLD, append
from ringfaust.spark.lake.tables import LakeTable, last_closing, path, sql_name
from ringfaust.spark.lake.views import SPARK


class SparkEngine:
    """Runs gold's queries on Spark. See `GoldEngine`.

    Args:
        spark: the session.
        root: the lake's folder or URI.
    """

    array = SPARK.array

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self._root = spark, root
        self._kept: list[DataFrame] = []

    def name_of(self, table: str) -> str:  # noqa: D102 - see GoldEngine
        return sql_name(self._root, table)

    def timestamp(self, expression: str) -> str:  # noqa: D102
        return SPARK.timestamp.format(ms=expression)

    def last_closing(self, table: str) -> int:  # noqa: D102
        return last_closing(self._spark, self._root, table)

    def define(self, name: str, query: str) -> None:  # noqa: D102
        self._spark.sql(query).createOrReplaceTempView(name)

    def keep(self, name: str, query: str) -> None:  # noqa: D102
        kept = self._spark.sql(query).persist()
        self._kept.append(kept)
        kept.createOrReplaceTempView(name)

    def rows(self, query: str) -> Sequence[Sequence[Any]]:  # noqa: D102
        return self._spark.sql(query).collect()

    def append(  # noqa: D102
        self, query: str, table: LakeTable, batch: int, *, replace: str | None = None
    ) -> None:
        rows = self._spark.sql(query).select(table.schema.names)
        condition = None if replace is None else "true" if replace == ALL else f"{replace} IS NULL"
        append(rows, self._root, table, GOLD, batch, replace=condition)

    def merge(  # noqa: D102
        self,
        rows: str,
        table: LakeTable,
        batch: int,
        *,
        key: Sequence[str],
        update: Mapping[str, str],
        since: Mapping[str, Any] | None = None,
    ) -> None:
        on = [f"t.{name} = s.{name}" for name in key]
        on += [f"t.{name} >= {_literal(bound)}" for name, bound in (since or {}).items()]
        source = self._spark.table(rows).select(table.schema.names).alias("s")
        target = DeltaTable.forPath(self._spark, path(self._root, table.name)).alias("t")
        merging = target.merge(source, " AND ".join(on))
        merging = merging.whenMatchedUpdate(
            "t.batch < s.batch", {f"t.{name}": value for name, value in update.items()}
        )
        merging.whenNotMatchedInsertAll().execute()

    def close(self) -> None:  # noqa: D102
        for kept in self._kept:
            kept.unpersist()
        self._kept.clear()


def _literal(value: date) -> str:
    """A date or time as SQL."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}'"
    return f"DATE '{value}'"
