"""Transitions → what happened in each queue in each minute, and its depths at the minute's end."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ringfaust.spark.lake.lifecycles import MESSAGE_KEY
from ringfaust.spark.lake.store import merge
from ringfaust.spark.lake.tables import COUNTED, QUEUE_MINUTES, QUEUES, read
from ringfaust.spark.lines import is_refusal

_QUEUE = ("partition", "queue")
_DEPTHS = ("ready", "delivering", "scheduled")
_TAKEN_OUT = ("expired", "removed", "moved_out", "lost")
"""Events that end a ready or a scheduled message without saying which of the two it was."""


def write(spark: SparkSession, root: str, lines: DataFrame, batch: int) -> None:
    """Merge the batch into `queue_minutes` and `queues`.

    A row stores the last batch that it includes, so merging that batch again does not change it.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        lines: the batch's transitions with the column `life`.
        batch: its number.
    """
    events = lines.where(F.col("queue").isNotNull() & (F.col("queue") != "") & ~is_refusal())
    events = events.withColumn("minute", F.date_trunc("minute", F.timestamp_millis("time_ms")))
    rows = _counted(events, _unscheduled(spark, root, events))
    before = read(spark, root, "queues").where(F.col("batch") < batch)
    before = before.select(*_QUEUE, *(F.col(name).alias(f"{name}_before") for name in _DEPTHS))
    so_far = Window.partitionBy(*_QUEUE).orderBy("minute")
    rows = rows.join(before, list(_QUEUE), "left").withColumns(
        {
            name: F.coalesce(f"{name}_before", F.lit(0)) + F.sum(f"{name}_change").over(so_far)
            for name in _DEPTHS
        }
        | {"batch": F.lit(batch).cast("long"), "date": F.to_date("minute")}
    )
    rows = rows.persist()
    first = rows.agg(F.min("minute")).collect()[0][0]
    if first is not None:
        _merge_minutes(rows, root, f"{first:%Y-%m-%d %H:%M:%S}")
        _merge_queues(rows, root)
    rows.unpersist()


def _is(*events: str) -> Column:
    return F.col("event").isin(*events)


def _change(*signed: tuple[int, Column]) -> Column:
    """The sum, over all lines, of the signs whose condition holds."""
    return F.sum(
        sum((F.when(applies, sign).otherwise(0) for sign, applies in signed), start=F.lit(0))
    )


def _counted(events: DataFrame, unscheduled: DataFrame) -> DataFrame:
    """By queue and minute: counts of events, and the change of each depth."""
    delayed = _is("returned") & F.coalesce(F.col("due_ms") > 0, F.lit(False))
    from_delivery = (
        _is("acked", "dead", "returned")
        | (_is("expired") & F.coalesce(F.col("delivery") > 0, F.lit(False)))
        | (_is("evicted") & (F.col("reason") == "return_overflow"))
    )
    # A due message for which there was no room. With a cause, another message was evicted for it.
    undue = _is("evicted") & (F.col("reason") == "scheduled_overflow") & (F.col("cause") == "")
    from_ready = _is("dispatched") | (_is("evicted", *_TAKEN_OUT) & ~from_delivery & ~undue)
    again = _is("dispatched") & (F.col("handovers") > 1)
    age = F.when(_is("evicted"), F.col("age_ms"))
    counts = {name: F.count_if(_is(name)) for name in COUNTED}
    counts["added"] = F.count_if(_is("added", "scheduled"))
    counts["redelivered"] = F.count_if(again)
    counted = events.groupBy(*_QUEUE, "minute").agg(
        *(count.alias(name) for name, count in counts.items()),
        F.sum(F.when(_is("added", "scheduled"), F.col("size_bytes"))).alias("added_bytes"),
        F.sum(age).alias("evicted_age_ms_sum"),
        F.min(age).alias("evicted_age_ms_min"),
        F.max(age).alias("evicted_age_ms_max"),
        F.max_by("ring_size", F.when(_is("evicted"), F.col("step"))).alias("ring_size"),
        _change((1, _is("added", "due")), (1, _is("returned") & ~delayed), (-1, from_ready)).alias(
            "ready_change"
        ),
        _change((1, _is("dispatched")), (-1, from_delivery)).alias("delivering_change"),
        _change((1, _is("scheduled")), (1, delayed), (-1, _is("due")), (-1, undue)).alias(
            "scheduled_change"
        ),
    )
    moved = F.coalesce("unscheduled", F.lit(0))
    return counted.join(unscheduled, [*_QUEUE, "minute"], "left").withColumns(
        {
            "ready_change": F.col("ready_change") + moved,
            "scheduled_change": F.col("scheduled_change") - moved,
        }
    )


def _unscheduled(spark: SparkSession, root: str, events: DataFrame) -> DataFrame:
    """By queue and minute: how many messages ended while they were scheduled."""
    gone = events.where(_is(*_TAKEN_OUT) & ~F.coalesce(F.col("delivery") > 0, F.lit(False)))
    if gone.isEmpty():
        return spark.createDataFrame(
            [], "partition int, queue string, minute timestamp, unscheduled long"
        )
    placed = _is("added", "scheduled", "due", "returned")
    waits = _is("scheduled") | (_is("returned") & F.coalesce(F.col("due_ms") > 0, F.lit(False)))
    keys = gone.select(*MESSAGE_KEY, "minute")
    here = (
        events.where(placed)
        .join(keys.drop("minute"), list(MESSAGE_KEY), "left_semi")
        .groupBy(*MESSAGE_KEY)
        .agg(F.max(F.struct("offset", "line", waits.alias("waits"))).alias("last"))
        .select(*MESSAGE_KEY, F.col("last.waits").alias("waits"))
    )
    earlier = read(spark, root, "messages").where("ended_date IS NULL AND state = 'scheduled'")
    earlier = earlier.select(*MESSAGE_KEY, F.lit(True).alias("waited"))
    return (
        keys.join(here, list(MESSAGE_KEY), "left")
        .join(earlier, list(MESSAGE_KEY), "left")
        .where(F.coalesce("waits", "waited"))
        .groupBy(*_QUEUE, "minute")
        .agg(F.count("*").alias("unscheduled"))
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
