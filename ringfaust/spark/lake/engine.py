"""What the gold tables need of an engine. Spark and DuckDB understand the same queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ringfaust.spark.lake.tables import LakeTable

ALL = "*"
"""Replace all rows of a table."""


class GoldEngine(Protocol):
    """Runs the queries of one batch, and writes their results so that the batch counts once.

    A write fails if someone else has committed what it depends on. The batch is then to be
    processed again with a new engine.
    """

    array: str
    """The function that makes an array."""

    def name_of(self, table: str) -> str:
        """How a query refers to a table of the lake."""

    def timestamp(self, expression: str) -> str:
        """An expression in ms since 1970 as a timestamp."""

    def last_closing(self, table: str) -> int:
        """The last batch that a closing has brought into a table; -1: none."""

    def define(self, name: str, query: str) -> None:
        """Let queries refer to this query by a name."""

    def keep(self, name: str, query: str) -> None:
        """The same, and compute it only once."""

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        """The rows of a small result."""

    def append(
        self, query: str, table: LakeTable, batch: int, *, replace: str | None = None
    ) -> None:
        """Append rows, unless the table has the batch already.

        Args:
            query: has the table's columns.
            table: the table.
            batch: the number of the batch.
            replace: the same commit removes the rows whose column of this name is null, or ALL
                rows. The table is partitioned by the column.
        """

    def merge(
        self,
        rows: str,
        table: LakeTable,
        batch: int,
        *,
        key: Sequence[str],
        update: Mapping[str, str],
        since: Mapping[str, Any] | None = None,
    ) -> None:
        """Insert new rows, and update those of an earlier batch.

        Args:
            rows: the name of kept rows with the table's columns; each key once.
            table: the table.
            batch: the number of the batch.
            key: its columns that identify a row.
            update: by column, the new value from an existing row `t` and a row `s`.
            since: by column, a bound: no row that is below it has a key of `rows`.
        """

    def close(self) -> None:
        """Forget what was defined and kept."""
