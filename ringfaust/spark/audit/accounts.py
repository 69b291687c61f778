"""The counts of each queue (R100), in total and per time window."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ringfaust.spark.audit.lifecycles import message_events
from ringfaust.spark.message_states import ENDED, ENTRY_EVENTS, EXIT_EVENTS

STATES = ("ready", "delivering", "scheduled")
COUNTS = ("added", *EXIT_EVENTS, *STATES)
_WINDOW_COUNTS = ("added", "due", "dispatched", "returned", *EXIT_EVENTS)


def queue_rows(events: DataFrame, findings: DataFrame) -> DataFrame:
    """One row per queue: queue, COUNTS, faults, balanced.

    The last event of each message decides whether the queue still holds it.
    """
    event = F.col("event")
    counts = {"added": event.isin(*ENTRY_EVENTS)}
    counts |= {name: event == name for name in EXIT_EVENTS}
    counts |= {name: F.col("last") & (F.col("state") == name) for name in STATES}
    counted = message_events(events).groupBy("queue").agg(*_sums(counts))
    faults = findings.filter("queue is not null").groupBy("queue").agg(F.count("*").alias("faults"))
    both = counted.join(faults, "queue", "full_outer").fillna(0)
    total = sum((F.col(name) for name in COUNTS[1:]), F.lit(0))
    balanced = (F.col("added") == total) & (F.col("faults") == 0)
    return both.withColumn("balanced", balanced)


def window_rows(events: DataFrame, length: str) -> DataFrame:
    """One row per queue and time window in which the queue had a transition.

    Args:
        events: result of `lifecycles.trace`.
        length: a Spark interval, such as `1 hour`.

    Returns:
        queue, start, counts of transitions, opening and closing (messages held before and after
        the window), balanced. `closing` is counted from the first and last event of each message,
        not from the transitions, so opening + in - out = closing is a real check.
    """
    event = F.col("event")
    start = F.window(F.timestamp_millis("time_ms"), length)["start"].alias("start")
    counts = {name: event == name for name in _WINDOW_COUNTS if name != "added"}
    counts |= {
        "added": event.isin(*ENTRY_EVENTS),
        "began": event.isin(*ENTRY_EVENTS) & F.col("first"),
        "ended": F.col("last") & (F.col("state") == ENDED),
    }
    found = message_events(events).groupBy("queue", start).agg(*_sums(counts))
    so_far = Window.partitionBy("queue").orderBy("start")
    closing = F.sum(F.col("began") - F.col("ended")).over(so_far)
    out = sum((F.col(name) for name in EXIT_EVENTS), F.lit(0))
    found = found.withColumn("closing", closing)
    found = found.withColumn("opening", F.coalesce(F.lag("closing").over(so_far), F.lit(0)))
    adds_up = F.col("opening") + F.col("added") - out == F.col("closing")
    return found.withColumn("balanced", adds_up).select(
        "queue", "start", "opening", *_WINDOW_COUNTS, "closing", "balanced"
    )


def _sums(counts: dict[str, Column]) -> list[Column]:
    return [
        F.sum(F.when(condition, 1).otherwise(0)).alias(name) for name, condition in counts.items()
    ]
