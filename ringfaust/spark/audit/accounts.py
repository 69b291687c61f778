"""The counts of each queue (R100), in total and per time window."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ringfaust.core.model import HELD_STATES
from ringfaust.protocol.lifecycle import ENDED, ENTRY_EVENTS, EXIT_EVENTS
from ringfaust.spark.audit.balance import Balance
from ringfaust.spark.audit.lifecycles import message_events

FLOWS = ("added", *EXIT_EVENTS)
COUNTS = (*FLOWS, *HELD_STATES)
_WINDOW_COUNTS = ("added", "due", "dispatched", "returned", *EXIT_EVENTS)


def queue_rows(events: DataFrame, findings: DataFrame, opening: Balance | None = None) -> DataFrame:
    """One row per queue: queue, COUNTS since the beginning, faults, balanced.

    The last event of each message decides whether the queue still holds it.
    """
    held: dict[str, Column] = {name: F.col("state") == name for name in HELD_STATES}
    messages = events.filter("about and last and nth in (1, -1)").groupBy("queue")
    counted = _counted(events, opening, "queue")
    counted = counted.join(messages.agg(*_count_each(held)), "queue", "full_outer")
    faults = findings.filter("queue is not null").groupBy("queue").agg(F.count("*").alias("faults"))
    both = counted.join(faults, "queue", "full_outer").fillna(0)
    total = sum((F.col(name) for name in COUNTS[1:]), F.lit(0))
    balanced = (F.col("added") == total) & (F.col("faults") == 0)
    return both.withColumn("balanced", balanced)


def closing_rows(events: DataFrame, opening: Balance | None = None) -> DataFrame:
    """Each queue's last sequence number, and its counts since the beginning: `Frames.queues`.

    A queue that was deleted numbers its messages from 1 again. Without one since, it has no row.
    """
    by_queue = ("partition", "queue")
    entered = message_events(events).filter(F.col("event").isin(*ENTRY_EVENTS))
    last = F.max(F.struct("generation", "sequence")).alias("number")
    deleted = events.filter("nth = 1 and event = 'deleted'").groupBy(*by_queue)
    both = entered.groupBy(*by_queue).agg(last).join(
        deleted.agg(F.count_distinct("step").alias("deletions")), list(by_queue), "full_outer"
    )  # fmt: skip
    deletions = F.coalesce("deletions", F.lit(0))
    number = F.when(F.col("number.generation") == deletions, F.col("number.sequence")).when(
        deletions > 0, 0
    )
    both = both.select(*by_queue, number.cast("long").alias("number"))
    found = _counted(events, opening, *by_queue).join(both, list(by_queue), "full_outer")
    highest = F.col("number")
    if opening is not None:
        earlier = opening.frames.queues.select(*by_queue, "highest")
        found = found.join(earlier, list(by_queue), "left")
        highest = F.coalesce("number", "highest")
    return found.withColumn("highest", highest).drop("number").fillna(0).filter("highest > 0")


def _counted(events: DataFrame, opening: Balance | None, *by: str) -> DataFrame:
    """How many messages have entered and left since the beginning."""
    counts = {"added": F.col("event").isin(*ENTRY_EVENTS)}
    counts |= {name: F.col("event") == name for name in EXIT_EVENTS}
    found = message_events(events).groupBy(*by).agg(*_count_each(counts))
    if opening is None:
        return found
    both = found.unionByName(opening.frames.queues.select(*by, *FLOWS))
    return both.groupBy(*by).agg(*[F.sum(name).alias(name) for name in FLOWS])


def window_rows(events: DataFrame, length: str) -> DataFrame:
    """One row per queue and time window in which the queue had a transition.

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
    found = message_events(events).groupBy("queue", start).agg(*_count_each(counts))
    so_far = Window.partitionBy("queue").orderBy("start")
    carried = events.filter("nth = -1 and about and first").groupBy("queue")
    carried_rows = F.broadcast(carried.agg(F.count("*").alias("carried")))
    found = found.join(carried_rows, "queue", "left").fillna(0, ["carried"])
    closing = F.col("carried") + F.sum(F.col("began") - F.col("ended")).over(so_far)
    out = sum((F.col(name) for name in EXIT_EVENTS), F.lit(0))
    found = found.withColumn("closing", closing)
    found = found.withColumn("opening", F.coalesce(F.lag("closing").over(so_far), F.col("carried")))
    adds_up = F.col("opening") + F.col("added") - out == F.col("closing")
    return found.withColumn("balanced", adds_up).select(
        "queue", "start", "opening", *_WINDOW_COUNTS, "closing", "balanced"
    )


def _count_each(counts: dict[str, Column]) -> list[Column]:
    return [F.count_if(condition).alias(name) for name, condition in counts.items()]
