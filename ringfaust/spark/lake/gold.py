"""Transitions → gold. Each batch is counted by minute; messages wait for the end of the day.

Each batch is appended to `queue_minutes`. `messages` and `deliveries` are brought up to date by a
closing (`lake.views`): in the first batch that contains a later day, or, if none
comes, by the clock. So the work depends on the batch, on the day and on what the queues hold, not
on the size of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from ringfaust.spark.lake import counts, minutes
from ringfaust.spark.lake.queries import GoldQueries
from ringfaust.spark.lake.store import GOLD, LakeProgress
from ringfaust.spark.lake.tables import DELETIONS, TABLES
from ringfaust.spark.lake.views import ENDED_ON, closing_of

CLOSING_DELAY = timedelta(minutes=10)
"""The clock closes a day this long after its end (UTC): the last lines are in the topic by then."""
_CLOSING, _CLOSED = " closing", " closed"
"""What gold's note adds to the last day of which it has lines, once the clock closes that day."""


def catch_up(spark: SparkSession, root: str, batch: int, lines: DataFrame | None = None) -> None:
    """Process all batches up to `batch` that gold does not have yet.

    `lines` are the transitions of that batch, if they are at hand.
    """
    progress = LakeProgress(spark, root, GOLD)
    _finish_closing(spark, root, progress)
    for number in range(progress.batch + 1, batch + 1):
        with closing(GoldQueries(spark, root)) as queries:
            queries.define_lines(number, lines if number == batch else None)
            progress.complete(number, _process(queries, number, progress.note))


def close_by_clock(spark: SparkSession, root: str, now: datetime) -> bool:
    """Close the last day of which there are lines, unless it may still go on. Whether it did.

    To be called between two batches, when all lines that are in the topic have been read. Lines of
    that day that come later wait for the next closing.
    """
    progress = LakeProgress(spark, root, GOLD)
    day = _day(progress.note)
    if not day or progress.note != day:
        return False
    end = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1)
    if now < end + CLOSING_DELAY:
        return False
    progress.complete(progress.batch, day + _CLOSING)
    _finish_closing(spark, root, progress)
    return True


def _finish_closing(spark: SparkSession, root: str, progress: LakeProgress) -> None:
    """Do a closing by the clock that has begun."""
    if progress.note.endswith(_CLOSING):
        batch = progress.batch
        close(GoldQueries(spark, root), batch)
        progress.complete(batch, _day(progress.note) + _CLOSED)


def _day(note: str) -> str:
    """The last day of which gold has lines, as YYYY-MM-DD; empty: it has none."""
    return note.removesuffix(_CLOSING).removesuffix(_CLOSED)


def _process(queries: GoldQueries, batch: int, note: str) -> str:
    """Process a batch. Takes gold's note before it, and returns the one after it."""
    found = minutes.write(queries, batch)
    if found is None:
        return note
    first_day, last_day, deletions = found
    if deletions:
        deleted = f"SELECT {', '.join(DELETIONS.schema.names)} FROM lines WHERE event = 'deleted'"
        queries.append(deleted, DELETIONS, batch)
    day = _day(note)
    if day >= last_day:  # a partition that lags does not take the day back
        return note
    # A day that the clock has closed is not closed again by the first lines of a later one.
    begun = first_day if note.endswith(_CLOSED) else day or first_day
    if begun != last_day:
        close(queries, batch)
    return last_day


def complete_batch(progress: LakeProgress) -> int:
    """The last batch that gold has completed, with a closing by the clock that follows it."""
    return progress.batch - progress.note.endswith(_CLOSING)


def closings(found: Mapping[str, int], complete: int) -> Mapping[str, int]:
    """By table, the last batch that a closing has brought into it.

    A closing of messages is followed by one of deliveries, which leaves no trace if there are none.

    `found` is what the tables' rows say, and `complete` the last batch that gold has completed.
    """
    messages = found["messages"]
    if messages > complete:
        return found
    return {**found, "deliveries": max(messages, found["deliveries"])}


def close(queries: GoldQueries, batch: int) -> None:
    """Bring messages and deliveries up to a batch, and keep the counts.

    The batch's deletions are stored.
    """
    closed = closings({table: queries.last_closing(table) for table in ENDED_ON}, batch - 1)
    for table, ended_on in ENDED_ON.items():
        after = closed[table]
        if after < batch:
            rows = closing_of(table, queries.name_of, after, batch)
            queries.append(rows, TABLES[table], batch, replace=f"{ended_on} IS NULL")
    counts.write(queries, batch)
