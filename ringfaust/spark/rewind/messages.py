"""One row per message: its entry, and its state at one or several moments."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.protocol.lifecycle import ENDED, ENTRY_EVENTS
from ringfaust.spark.lines import number_generations
from ringfaust.spark.message_states import STATE_AFTER

QUEUE = ("request", "partition", "queue")
"""What tells the queues of several requests apart."""
_MESSAGE = (*QUEUE, "generation", "sequence")


def trace_messages(lines: DataFrame, **moments: Column) -> DataFrame:
    """Each message with its last transition at each moment.

    The last transition alone decides the state of a message.

    Args:
        lines: result of `read_lines` up to the last of the moments, with a column `request`, so
            that one pass can answer several requests about a queue.
        moments: by name of the new column: whether a line is of that moment or before.

    Returns:
        request, partition, queue, `generation`, `generations`, sequence; `entry`, a struct (null if
        the events do not go back so far); `came_due_ms`, when a message that was sent with a
        schedule became due; `handovers`, the number of all deliveries; and a struct per moment
        (null if the message had not been sent) with its `state`, one of HELD_STATES or EXIT_EVENTS,
        and other fields of the transition.
    """
    event = F.col("event")
    after = F.expr(STATE_AFTER)
    state = F.when(after == ENDED, event).otherwise(after)
    # The fields of the order come first, so that the greatest struct is the last transition.
    transition = F.struct(
        "step", "offset", "line", state.alias("state"), "time_ms", "due_ms", "consumer", "delivery",
        "attempt", "reason", "cause", "to", "by",
    )  # fmt: skip
    entry = F.struct(
        "step", "time_ms", "id", "source", "enqueued_ms", "priority", "expires_at_ms",
        (event == "scheduled").alias("to_schedule"),
    )  # fmt: skip
    due = F.struct("step", "due_ms")
    last = [F.max(F.when(condition, transition)).alias(name) for name, condition in moments.items()]
    about_messages = number_generations(lines, *QUEUE).filter(F.col("sequence").isNotNull())
    return (
        about_messages.groupBy(*_MESSAGE)
        .agg(
            F.first("generations").alias("generations"),
            F.max(F.when(event.isin(*ENTRY_EVENTS), entry)).alias("entry"),
            F.min(F.when(event == "due", due)).alias("first_due"),
            F.max("handovers").alias("handovers"),
            *last,
        )
        .withColumn("came_due_ms", F.when(F.col("entry.to_schedule"), F.col("first_due.due_ms")))
        .drop("first_due")
    )
