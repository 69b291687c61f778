"""Deleting the days that a table no longer has to keep, but none that the lake still needs.

Bronze also keeps each record until a closed day of the audit contains it. The record's own time
does not tell: a producer's clock may be wrong, and old records may be sent again.

Within a partition days never go back, and a batch reads every partition that lags behind. So no
later batch touches a day before those of the last batch, also while the streams run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.errors import BadSetting
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.balance import TopicPositions
from ringfaust.spark.audit.period import in_ranges
from ringfaust.spark.lake import silver
from ringfaust.spark.lake.gold import closings, complete_batch
from ringfaust.spark.lake.store import GOLD, LakeProgress
from ringfaust.spark.lake.stream import OUTPUTS
from ringfaust.spark.lake.tables import BRONZE, QUEUE_COUNTS, TABLES, LakeTable, last_closing, read
from ringfaust.spark.lake.views import ENDED_ON


@dataclass(frozen=True, slots=True)
class UsedDays:
    """From which day on the lake itself uses a table. None: it uses no day."""

    needed: date | None
    """Unfinished batches and the next closing read the rows from here on."""
    touched: date | None
    """The last batch or closing wrote rows from here on, and the next one may."""

    def first(self) -> date:
        """The first day that may still change; at most today."""
        return min(day for day in (self.needed, self.touched, today()) if day is not None)


RETAINED = tuple(table.name for table in TABLES.values() if table.day)
"""The tables that can have a retention: those with a folder for each day."""
_HOURS = {"h": 1, "d": 24}


def read_days(retention: Sequence[str]) -> dict[str, int]:
    """Read how many days tables keep, besides today. Tables that are not named keep everything.

    Raises:
        BadSetting: a text is not of the form TABLE=DAYS, or the table has no days.
    """
    days: dict[str, int] = {}
    for text in retention:
        table, _, length = text.partition("=")
        if table not in RETAINED:
            advice = f"use TABLE=DAYS, such as bronze=30d; tables: {', '.join(RETAINED)}"
            raise BadSetting("retention", text, advice)
        if not re.fullmatch(r"[1-9]\d{0,4}d", length):
            raise BadSetting(f"retention of {table}", length, "use a number of days, such as 30d")
        days[table] = int(length[:-1])
    return days


def read_hours(text: str) -> int:
    """How long files stay that are no longer part of a table. Raises BadSetting."""
    found = re.fullmatch(r"([1-9]\d{0,4})([hd])", text)
    if not found:
        advice = "use a number and h or d, at least 1h, such as 12h or 7d"
        raise BadSetting("deleted-file-retention", text, advice)
    return int(found[1]) * _HOURS[found[2]]


def today() -> date:
    """The current day, in UTC."""
    return datetime.now(UTC).date()


def used_days(spark: SparkSession, root: str, worker: WorkerConfig) -> dict[str, UsedDays]:
    """The days that the lake uses of each table that can have a retention.

    The topics tell the streams apart in bronze. Of the inputs, bronze is the only table.
    """
    progress = LakeProgress(spark, root, GOLD)
    gold = progress.batch
    events, outputs = (
        LakeProgress(spark, root, stream).batch
        for stream in (silver.EVENTS_STREAM, silver.OUTPUTS_STREAM)
    )
    found = {table: last_closing(spark, root, table) for table in ENDED_ON}
    counted = F.col("batch") == last_closing(spark, root, QUEUE_COUNTS.name)
    closed = closings(found, complete_batch(progress))
    batch = F.col("batch")
    is_event = F.col("topic") == worker.topic(Role.EVENTS)
    is_output = F.col("topic").isin(*map(worker.topic, OUTPUTS))

    def used(table: str, needed: Column, touched: Column) -> UsedDays:
        day = TABLES[table].day
        assert day, "all of these are partitioned by day"
        rows = read(spark, root, table).where(needed | touched)
        row = rows.agg(F.min(F.when(needed, F.col(day))), F.min(day)).collect()[0]
        return UsedDays(row[0], row[1])

    return {
        "bronze": used(
            "bronze",
            (is_event & (batch > events)) | (is_output & (batch > outputs)),
            (is_event & (batch == events)) | (is_output & (batch == outputs)),
        ),
        "transitions": used("transitions", batch > min(closed.values()), batch == gold),
        "records": used("records", batch > outputs, batch == outputs),
        "quarantine": UsedDays(None, None),
        "messages": used("messages", batch > closed["deliveries"], batch == closed["messages"]),
        "deliveries": used("deliveries", F.lit(False), batch == closed["deliveries"]),
        "queue_minutes": used("transitions", batch > gold, batch == gold),
        "queue_counts": used("queue_counts", F.lit(False), counted),
    }


def check(used: Mapping[str, UsedDays], retention: Mapping[str, int]) -> None:
    """Raise BadSetting, with the shortest valid length, if a retention is of days still needed."""
    for table, days in retention.items():
        first = used[table].needed
        if first is not None and first < _oldest(days):
            advice = (
                f"unfinished batches or the next closing need the days since {first}: use at "
                f"least {(today() - first).days}d, or let `ringfaust spark lake` catch up first"
            )
            raise BadSetting(f"retention of {table}", f"{days}d", advice)


def check_closed(spark: SparkSession, root: str, days: int, closed: TopicPositions) -> None:
    """Raise BadSetting for a retention of bronze that deletes records before a day is closed."""
    first = read(spark, root, BRONZE.name).agg(F.min(str(BRONZE.day))).collect()[0][0]
    if not closed and first is not None and first < _oldest(days):
        raise BadSetting(
            f"retention of {BRONZE.name}",
            f"{days}d",
            f"the audit has closed no day, and the table has records since {first}: use at least "
            f"{(today() - first).days}d, or close days with `ringfaust spark audit --lake` first",
        )


def old_rows(table: LakeTable, days: int, used: UsedDays, closed: TopicPositions) -> Column:
    """The rows to delete: old days, except those that are used, of bronze only what is closed."""
    old = _before(table, min(_oldest(days), used.first()))
    return old & _is_closed(closed) if table is BRONZE else old


def count_unclosed(spark: SparkSession, root: str, days: int, closed: TopicPositions) -> int:
    """The records of bronze that stay, though they are older, as no closed day contains them."""
    old = _before(BRONZE, _oldest(days)) & ~_is_closed(closed)
    return read(spark, root, BRONZE.name).where(old).count()


def _before(table: LakeTable, day: date) -> Column:
    return F.col(str(table.day)) < F.lit(day)


def _is_closed(closed: TopicPositions) -> Column:
    ranges = {at: (0, end) for at, end in closed.items()}
    return in_ranges(ranges) if ranges else F.lit(False)


def _oldest(days: int) -> date:
    return today() - timedelta(days=days)
