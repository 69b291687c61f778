"""Up to when a lake knows the history: what happened later may not have been read yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ringfaust.spark.rewind.moment import AtTime, ResolvedMoment
from ringfaust.spark.rewind.opening import Opening


class LastLine(NamedTuple):
    """The last line of a partition."""

    step: int
    time_ms: int

    def is_before(self, partition: int, moment: ResolvedMoment) -> bool:
        """Whether the moment is later than all that is known of the partition."""
        if isinstance(moment, AtTime):
            return self.time_ms < moment.time_ms
        return partition == moment.partition and self.step < moment.step


def last_lines(lines: DataFrame, opening: Opening) -> dict[int, LastLine]:
    """By partition the last line, which these lines have, or the opening has counted."""
    greatest = [F.max(name).alias(name) for name in LastLine._fields]
    found: dict[int, LastLine] = {}
    for row in [*opening.rows, *lines.groupBy("partition").agg(*greatest).collect()]:
        step, time_ms = found.get(row["partition"], (0, 0))
        last = LastLine(max(step, row["step"] or 0), max(time_ms, row["time_ms"] or 0))
        found[row["partition"]] = last
    return found


def known_until(
    last: Mapping[int, LastLine], partitions: Collection[int], moments: Sequence[ResolvedMoment]
) -> dict[int, int]:
    """Of the partitions whose last line is before a moment: its time, in ms since 1970."""
    return {
        partition: last[partition].time_ms
        for partition in sorted(partitions)
        if any(last[partition].is_before(partition, moment) for moment in moments)
    }
