"""What each queue counts (R100), over all and for each window of time."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ringfaust.spark.audit.lifecycles import ENTERS, LEAVES, once

STATES = ("ready", "delivering", "scheduled")
COUNTS = ("added", *LEAVES, *STATES)
_IN_WINDOWS = ("added", "due", "dispatched", "returned", *LEAVES)


def rows(told: DataFrame, findings: DataFrame) -> DataFrame:
    """A row for each queue: queue, COUNTS, faults, balanced.

    What is held is what the last line of each message says.
    """
    event = F.col("event")
    counts = {"added": event.isin(*ENTERS)}
    counts |= {name: event == name for name in LEAVES}
    counts |= {name: F.col("last") & (F.col("state") == name) for name in STATES}
    counted = once(told).groupBy("queue").agg(*_sums(counts))
    faults = findings.filter("queue is not null").groupBy("queue").agg(F.count("*").alias("faults"))
    both = counted.join(faults, "queue", "full_outer").fillna(0)
    total = sum((F.col(name) for name in COUNTS[1:]), F.lit(0))
    balanced = (F.col("added") == total) & (F.col("faults") == 0)
    return both.withColumn("balanced", balanced)


def windows(told: DataFrame, length: str) -> DataFrame:
    """A row for each queue and window in which something happened to it.

    Args:
        told: as of `lives.tell`.
        length: an interval as Spark reads it, such as `1 hour`.

    Returns:
        queue, start, counts of transitions, opening, closing (what is held before and after),
        balanced. The closing is counted from the lives of the messages, one by one, and not from
        the transitions: opening + in - out = closing is a check.
    """
    event = F.col("event")
    start = F.window(F.timestamp_millis("time_ms"), length)["start"].alias("start")
    counts = {name: event == name for name in _IN_WINDOWS if name != "added"}
    counts |= {
        "added": event.isin(*ENTERS),
        "began": event.isin(*ENTERS) & F.col("first"),
        "ended": F.col("last") & (F.col("state") == "gone"),
    }
    found = once(told).groupBy("queue", start).agg(*_sums(counts))
    so_far = Window.partitionBy("queue").orderBy("start")
    closing = F.sum(F.col("began") - F.col("ended")).over(so_far)
    out = sum((F.col(name) for name in LEAVES), F.lit(0))
    found = found.withColumn("closing", closing)
    found = found.withColumn("opening", F.coalesce(F.lag("closing").over(so_far), F.lit(0)))
    adds_up = F.col("opening") + F.col("added") - out == F.col("closing")
    return found.withColumn("balanced", adds_up).select(
        "queue", "start", "opening", *_IN_WINDOWS, "closing", "balanced"
    )


def _sums(counts: dict[str, Column]) -> list[Column]:
    return [
        F.sum(F.when(condition, 1).otherwise(0)).alias(name) for name, condition in counts.items()
    ]
