"""One row a message: where it came from, and where it stood at one moment or several."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

BIRTHS = ("added", "scheduled")
HELD = ("ready", "delivering", "scheduled")
"""States of a message that is there; the others are how it left."""
GONE = ("acked", "evicted", "expired", "dead", "removed", "moved_out", "lost")
_QUEUE = ("ask", "partition", "queue")
_MESSAGE = (*_QUEUE, "life", "sequence")


def number_lives(lines: DataFrame) -> DataFrame:
    """Add `life` and `lives`: how often the queue had been deleted before, and in all.

    A deleted queue begins anew, and its sequence numbers with it.
    """
    ends = (
        lines.filter(F.col("event") == "deleted")
        .groupBy(*_QUEUE)
        .agg(F.collect_set("step").alias("ends"))
    )
    before = F.size(F.filter("ends", lambda step: step < F.col("step")))
    return (
        lines.join(F.broadcast(ends), list(_QUEUE), "left")
        .withColumn("life", F.coalesce(F.when(F.col("ends").isNotNull(), before), F.lit(0)))
        .withColumn(
            "lives", F.coalesce(F.when(F.col("ends").isNotNull(), F.size("ends")), F.lit(0))
        )
        .drop("ends")
    )


def trace_messages(lines: DataFrame, **moments: Column) -> DataFrame:
    """Each message, and its last transition at each moment.

    The state of a message is told by its last transition alone. Repeated lines, as Spark's Kafka
    sink writes after a crash, do no harm: they say the same at the same step.

    Args:
        lines: as of `read_lines`, those up to the last of the moments, with a column `ask`: several
            questions about the same queue stand beside each other.
        moments: by the name of a column to be: is a line of that moment or before?

    Returns:
        ask, partition, queue, `life`, `lives`, sequence; `birth`, a struct (null where the events
        do not go back so far); `came_due_ms`, when it came out of the schedule that it was sent to;
        `handovers`, how often it was handed over in all; and a struct for each moment (null where
        it was not there yet) with its `state`, one of HELD or GONE, and what is known of it.
    """
    event = F.col("event")
    is_ready = event.isin("added", "due") | ((event == "returned") & F.col("due_ms").isNull())
    state = (
        F.when(is_ready, "ready")
        .when(event.isin("scheduled", "returned"), "scheduled")
        .when(event == "dispatched", "delivering")
        .otherwise(event)
    )
    # The order of the transitions first: the greatest struct is the last of them.
    transition = F.struct(
        "step", "offset", "line", state.alias("state"), "time_ms", "due_ms", "consumer", "delivery",
        "attempt", "reason", "cause", "to", "by",
    )  # fmt: skip
    birth = F.struct(
        "step", "time_ms", "id", "source", "enqueued_ms", "priority", "expires_at_ms",
        (event == "scheduled").alias("to_schedule"),
    )  # fmt: skip
    due = F.struct("step", "due_ms")
    last = [F.max(F.when(condition, transition)).alias(name) for name, condition in moments.items()]
    about_messages = number_lives(lines).filter(F.col("sequence").isNotNull())
    return (
        about_messages.groupBy(*_MESSAGE)
        .agg(
            F.first("lives").alias("lives"),
            F.max(F.when(event.isin(*BIRTHS), birth)).alias("birth"),
            F.min(F.when(event == "due", due)).alias("first_due"),
            F.max("handovers").alias("handovers"),
            *last,
        )
        .withColumn("came_due_ms", F.when(F.col("birth.to_schedule"), F.col("first_due.due_ms")))
        .drop("first_due")
    )
