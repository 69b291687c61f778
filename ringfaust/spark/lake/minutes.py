"""Transitions → what happened in each queue in each minute, and its depths at the minute's end."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ringfaust.spark.lake.schedule import follow_scheduled
from ringfaust.spark.lake.store import GOLD, append, merge
from ringfaust.spark.lake.tables import COUNTED, QUEUE_MINUTES, QUEUES, SCHEDULED, read
from ringfaust.spark.lines import is_refusal

_QUEUE = ("partition", "queue")
_DEPTHS = ("ready", "delivering", "scheduled")
_TAKEN_OUT = ("expired", "removed", "moved_out", "lost")
"""Events that end a ready or a scheduled message without saying which of the two it was."""


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """What a batch of transitions contains."""

    first_minute: str
    """As SQL writes it."""
    first_day: str
    last_day: str
    deletions: int
    """Lines with which a queue is deleted."""
    schedulings: int
    """Lines with which a message begins to wait for its time."""


def write(spark: SparkSession, root: str, lines: DataFrame, batch: int) -> BatchSummary | None:
    """Merge the batch into `queue_minutes` and `queues`.

    A row stores the last batch that it includes, so merging that batch again does not change it.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        lines: the batch's transitions.
        batch: its number.

    Returns:
        None if the batch has no lines about queues.
    """
    counted = _counted(lines).persist()
    summary = _summary(counted)
    if summary is None:
        return None
    rows, schedule = counted, None
    if summary.schedulings or not read(spark, root, "scheduled").isEmpty():
        schedule = follow_scheduled(spark, root, lines)
        rows = _correct_scheduled(rows, schedule.left())
    rows = _with_depths(spark, root, rows, batch).persist()
    _merge_minutes(rows, root, summary.first_minute)
    _merge_queues(rows, root)
    if schedule is not None:  # last: it replaces what the above depends on
        append(schedule.waiting(), root, SCHEDULED, GOLD, batch, replace="true")
        schedule.followed.unpersist()
    rows.unpersist()
    counted.unpersist()
    return summary


def _summary(counted: DataFrame) -> BatchSummary | None:
    first, last = F.min("minute"), F.max("minute")
    row = counted.agg(
        F.date_format(first, "yyyy-MM-dd HH:mm:ss"),
        F.date_format(first, "yyyy-MM-dd"),
        F.date_format(last, "yyyy-MM-dd"),
        F.sum("deletions"),
        F.sum("schedulings"),
    ).collect()[0]
    return None if row[0] is None else BatchSummary(*row)


def _with_depths(spark: SparkSession, root: str, rows: DataFrame, batch: int) -> DataFrame:
    """Add the depths at the end of each minute."""
    before = read(spark, root, "queues").where(F.col("batch") < batch)
    before = before.select(*_QUEUE, *(F.col(name).alias(f"{name}_before") for name in _DEPTHS))
    so_far = Window.partitionBy(*_QUEUE).orderBy("minute")
    return rows.join(before, list(_QUEUE), "left").withColumns(
        {
            name: F.coalesce(f"{name}_before", F.lit(0)) + F.sum(f"{name}_change").over(so_far)
            for name in _DEPTHS
        }
        | {"batch": F.lit(batch).cast("long"), "date": F.to_date("minute")}
    )


def _is(*events: str) -> Column:
    return F.col("event").isin(*events)


def _change(*signed: tuple[int, Column]) -> Column:
    """The sum, over all lines, of the signs whose condition holds."""
    return F.sum(
        sum((F.when(applies, sign).otherwise(0) for sign, applies in signed), start=F.lit(0))
    )


def _is_undue() -> Column:
    """A due message had no room. With a cause, another message was evicted for it."""
    return _is("evicted") & (F.col("reason") == "scheduled_overflow") & (F.col("cause") == "")


def _counted(lines: DataFrame) -> DataFrame:
    """By queue and minute: counts of events, and the change of each depth.

    A message that was scheduled when it was removed counts as one that was ready.
    """
    events = lines.where(F.col("queue").isNotNull() & (F.col("queue") != "") & ~is_refusal())
    events = events.withColumn("minute", F.date_trunc("minute", F.timestamp_millis("time_ms")))
    delayed = _is("returned") & F.coalesce(F.col("due_ms") > 0, F.lit(False))
    from_delivery = (
        _is("acked", "dead", "returned")
        | (_is("expired") & F.coalesce(F.col("delivery") > 0, F.lit(False)))
        | (_is("evicted") & (F.col("reason") == "return_overflow"))
    )
    undue = _is_undue()
    from_ready = _is("dispatched") | (_is("evicted", *_TAKEN_OUT) & ~from_delivery & ~undue)
    again = _is("dispatched") & (F.col("handovers") > 1)
    age = F.when(_is("evicted"), F.col("age_ms"))
    counts = {name: F.count_if(_is(name)) for name in COUNTED}
    counts["added"] = F.count_if(_is("added", "scheduled"))
    counts["redelivered"] = F.count_if(again)
    return events.groupBy(*_QUEUE, "minute").agg(
        *(count.alias(name) for name, count in counts.items()),
        F.sum(F.when(_is("added", "scheduled"), F.col("size_bytes"))).alias("added_bytes"),
        F.sum(age).alias("evicted_age_ms_sum"),
        F.min(age).alias("evicted_age_ms_min"),
        F.max(age).alias("evicted_age_ms_max"),
        F.max_by("ring_size", F.when(_is("evicted"), F.col("step"))).alias("ring_size"),
        F.count_if(_is("deleted")).alias("deletions"),
        F.count_if(_is("scheduled") | delayed).alias("schedulings"),
        _change((1, _is("added", "due")), (1, _is("returned") & ~delayed), (-1, from_ready)).alias(
            "ready_change"
        ),
        _change((1, _is("dispatched")), (-1, from_delivery)).alias("delivering_change"),
        _change((1, _is("scheduled")), (1, delayed), (-1, _is("due")), (-1, undue)).alias(
            "scheduled_change"
        ),
    )


def _correct_scheduled(counted: DataFrame, left: DataFrame) -> DataFrame:
    """Take the lines with which a scheduled message left its queue out of the scheduled depth."""
    moved = (
        left.where(~_is_undue())
        .groupBy(*_QUEUE, F.date_trunc("minute", F.timestamp_millis("time_ms")).alias("minute"))
        .agg(F.count("*").alias("moved"))
    )
    counted = counted.join(moved, [*_QUEUE, "minute"], "left").fillna(0, ["moved"])
    return counted.withColumns(
        {
            "ready_change": F.col("ready_change") + F.col("moved"),
            "scheduled_change": F.col("scheduled_change") - F.col("moved"),
        }
    )


def _merge_minutes(rows: DataFrame, root: str, first: str) -> None:
    on = (
        "t.partition = s.partition AND t.queue = s.queue AND t.minute = s.minute AND "
        f"t.minute >= TIMESTAMP '{first}' AND t.date >= DATE '{first[:10]}'"
    )
    update = {
        f"t.{name}": f"coalesce(t.{name} + s.{name}, t.{name}, s.{name})"
        for name in (*COUNTED, "added_bytes", "evicted_age_ms_sum")
    }
    update |= {f"t.{name}": f"s.{name}" for name in (*_DEPTHS, "batch")}
    update |= {
        "t.evicted_age_ms_min": "least(t.evicted_age_ms_min, s.evicted_age_ms_min)",
        "t.evicted_age_ms_max": "greatest(t.evicted_age_ms_max, s.evicted_age_ms_max)",
        "t.ring_size": "coalesce(s.ring_size, t.ring_size)",
    }
    merge(rows, root, QUEUE_MINUTES, on, update=update, only="t.batch < s.batch")


def _merge_queues(rows: DataFrame, root: str) -> None:
    """The current depths of each queue."""
    last = rows.groupBy(*_QUEUE).agg(
        *(F.max_by(name, "minute").alias(name) for name in (*_DEPTHS, "batch")),
        F.max("minute").alias("last_minute"),
    )
    update = {f"t.{name}": f"s.{name}" for name in (*_DEPTHS, "batch", "last_minute")}
    merge(last, root, QUEUES, "t.partition = s.partition AND t.queue = s.queue", update=update,
          only="t.batch < s.batch")  # fmt: skip
