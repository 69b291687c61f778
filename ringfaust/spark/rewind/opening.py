"""Where a rewind of a lake begins: at the last closing before the moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake.tables import OPEN_LINES, QUEUE_COUNTS, TRANSITIONS, read
from ringfaust.spark.rewind.moment import AtStep, ResolvedMoment


@dataclass(frozen=True, slots=True)
class Opening:
    """A closing of the lake, and what the queues had counted by then."""

    batch: int
    """The last batch that it contains; -1: there was no closing, and all lines are needed."""
    counts: Mapping[tuple[str, int], Mapping[str, Any]]
    """The rows of `queue_counts` by queue and partition."""

    def counts_of(self, queue: str, moment: ResolvedMoment) -> dict[int, Mapping[str, Any]]:
        """A queue's rows by partition, or that of the moment's partition."""
        return {
            partition: counts
            for (name, partition), counts in self.counts.items()
            if name == queue and (not isinstance(moment, AtStep) or partition == moment.partition)
        }


BEGINNING = Opening(-1, {})
"""Before the first line."""


def find_opening(
    spark: SparkSession, root: str, requests: Sequence[tuple[str, ResolvedMoment]]
) -> Opening:
    """The last closing that has each of these queues, and no line about it after its moment.

    The driver gets a row for each of the queues and closings.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        requests: names of queues, and moments from `resolve_moments`.
    """
    queues = {queue for queue, _ in requests}
    try:
        rows = read(spark, root, QUEUE_COUNTS.name).filter(F.col("queue").isin(*queues)).collect()
    except AnalysisException:  # the lake is older than this table
        return BEGINNING
    closings: dict[int, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        closings[row["batch"]][row["queue"]].append(row)
    usable = (
        batch
        for batch, found in closings.items()
        if all(_is_before(found[queue], moment) for queue, moment in requests)
    )
    batch = max(usable, default=-1)
    return Opening(
        batch,
        {
            (queue, row["partition"]): row.asDict()
            for queue, found in closings[batch].items()
            for row in found
        },
    )


def _is_before(rows: Sequence[Row], moment: ResolvedMoment) -> bool:
    """Whether a queue's rows of a closing say that it contains no line after the moment."""
    if isinstance(moment, AtStep):
        own = [row for row in rows if row["partition"] == moment.partition]
        return bool(own) and own[0]["step"] <= moment.step
    return bool(rows) and all(row["time_ms"] <= moment.time_ms for row in rows)


def lines_from(spark: SparkSession, root: str, opening: Opening) -> DataFrame:
    """The lines about what was open at a closing, and all lines since then."""
    since = read(spark, root, TRANSITIONS.name).filter(F.col("batch") > opening.batch)
    if opening is BEGINNING:
        return since
    held = read(spark, root, OPEN_LINES.name).filter(F.col("batch") == opening.batch)
    return since.unionByName(held, allowMissingColumns=True)
