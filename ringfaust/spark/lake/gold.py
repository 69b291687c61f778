"""Transitions → lifecycles of messages, evictions and deliveries, batch by batch.

Messages and deliveries that begin in a batch are appended, once. Those that began before are
merged, with values that do not change if the batch is merged again. A merge searches only rows that
are open, or that ended no earlier than the batch begins. So the work depends on the batch and on
what the queues hold, not on the size of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake import minutes
from ringfaust.spark.lake.lifecycles import MESSAGE_KEY, with_lifecycle
from ringfaust.spark.lake.store import Watermarks, append, merge
from ringfaust.spark.lake.tables import DELIVERIES, EVICTIONS, MESSAGES, read

STREAM = "gold"
ENDS = ("acked", "evicted", "expired", "dead", "removed", "moved_out", "lost")
_ENTERS = ("added", "scheduled")
_SAME_MESSAGE = " AND ".join(f"t.{name} = s.{name}" for name in MESSAGE_KEY)


@dataclass(frozen=True, slots=True)
class _BatchSummary:
    """What a batch of transitions contains."""

    from_ms: int
    """Earliest time."""
    entered: int
    """Lines with which a message enters a queue."""
    evicted: int
    """Lines with which a message is evicted."""
    deliveries: int
    """Lines that begin or end a delivery."""
    ends_unnamed: int
    """Lines that end a delivery without giving its number."""

    def not_before(self, date: str, time: str) -> str:
        """A condition on `t`: it is open, or ended no earlier than the batch begins."""
        since = f"DATE(TIMESTAMP_MILLIS({self.from_ms}))"
        return f"(t.{date} IS NULL OR (t.{date} >= {since} AND t.{time} >= {self.from_ms}))"


def catch_up(spark: SparkSession, root: str, batch: int) -> None:
    """Process all batches up to `batch` that gold does not have yet.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        batch: the last batch of `transitions`.
    """
    watermarks = Watermarks(spark, root, STREAM)
    for number in range(watermarks.batch + 1, batch + 1):
        _process(spark, root, number)
        watermarks.save(number)


def _process(spark: SparkSession, root: str, batch: int) -> None:
    transitions = read(spark, root, "transitions").where(F.col("batch") == batch)
    # Not cached: each reader needs only some columns, and reading the file is faster.
    lines = with_lifecycle(spark, root, transitions, batch)
    summary = _summary(lines)
    if summary is not None:
        minutes.write(spark, root, lines, batch)  # first: it reads the messages as they were before
        messages = _message_changes(lines).persist()
        _messages(root, messages, summary, batch)
        if summary.evicted:
            _evictions(spark, root, messages, summary, batch)
        if summary.deliveries:
            _deliveries(spark, root, lines, summary, batch)
        messages.unpersist()


def _summary(lines: DataFrame) -> _BatchSummary | None:
    """None if the batch has no lines."""
    settles = ("dispatched", "acked", "returned", "dead")
    row = lines.agg(
        F.min("time_ms"),
        F.count_if(F.col("event").isin(*_ENTERS)),
        F.count_if(F.col("event") == "evicted"),
        F.count_if(F.col("event").isin(*settles) | (F.col("delivery") > 0)),
        F.count_if(_ends_unnamed()),
    ).collect()[0]
    return None if row[0] is None else _BatchSummary(*row)


def _ends_unnamed() -> Column:
    return (F.col("event") == "dead") | (F.col("reason") == "return_overflow")


def _state_after() -> Column:
    """The state of a message after a line about it; null if it does not change."""
    event = F.col("event")
    return (
        F.when(event.isin("added", "due"), "ready")
        .when(event == "scheduled", "scheduled")
        .when(event == "dispatched", "delivering")
        .when(event == "returned", F.when(F.col("due_ms") > 0, "scheduled").otherwise("ready"))
        .when(event.isin(*ENDS), "ended")
    )


# --- messages -----------------------------------------------------------------------------------

_ENTER_FIELDS = (
    "source", "priority", "group", "size_bytes", "enqueued_ms", "due_ms", "expires_at_ms",
)  # fmt: skip
_END_FIELDS = ("reason", "cause", "consumer", "text", "to", "age_ms")
_KEEP = (
    "id", *_ENTER_FIELDS, "added_step", "fate", *_END_FIELDS, "ended_ms", "ended_step",
    "ended_date",
)  # fmt: skip
"""Columns that one line sets. A value that is present is never replaced."""


def _message_changes(lines: DataFrame) -> DataFrame:
    """What the batch says about each message: columns of `messages`, and `ready` and `ring_size`.

    `added_step` is null for messages of earlier batches.
    """
    about = lines.where(_state_after().isNotNull() & F.col("sequence").isNotNull())
    event = F.col("event")
    entered = F.when(
        event.isin(*_ENTERS), F.struct(F.col("step").alias("added_step"), *_ENTER_FIELDS)
    )
    ended = F.when(
        event.isin(*ENDS),
        F.struct(
            event.alias("fate"), F.col("time_ms").alias("ended_ms"),
            F.col("step").alias("ended_step"), *_END_FIELDS, "ready", "ring_size",
        ),
    )  # fmt: skip
    is_handed = event == "dispatched"
    # Sort first by the column that distinguishes most messages.
    rows = about.groupBy(*reversed(MESSAGE_KEY)).agg(
        F.first("id").alias("id"),
        F.first(entered, ignorenulls=True).alias("entered"),
        F.first(ended, ignorenulls=True).alias("end"),
        F.min(F.when(is_handed, F.col("time_ms"))).alias("first_dispatched_ms"),
        F.max(F.when(is_handed, F.col("time_ms"))).alias("last_dispatched_ms"),
        F.max(F.when(is_handed, F.col("delivery"))).alias("last_delivery"),
        F.max("attempt").alias("attempts"),
        F.max("handovers").alias("handovers"),
        F.array_sort(F.collect_set(F.when(is_handed, F.col("consumer")))).alias("consumers"),
        F.max(F.struct("offset", "line", _state_after().alias("state"))).alias("last"),
    )
    evicted_ms = F.when(F.col("fate") == "evicted", F.col("ended_ms") - F.col("age_ms"))
    return (
        rows.select(
            *MESSAGE_KEY, "id", "entered.*", "end.*", "first_dispatched_ms", "last_dispatched_ms",
            "last_delivery", "attempts", "handovers", "consumers", "last.state",
            F.col("last.offset").alias("last_offset"), F.col("last.line").alias("last_line"),
        )
        .withColumn("enqueued_ms", F.coalesce("enqueued_ms", evicted_ms))
        .withColumn("ended_date", F.to_date(F.timestamp_millis("ended_ms")))
    )  # fmt: skip


def _messages(root: str, messages: DataFrame, summary: _BatchSummary, batch: int) -> None:
    if summary.entered:
        began = messages.where("added_step IS NOT NULL").select(MESSAGES.schema.names)
        append(began, root, MESSAGES, STREAM, batch)
    newer = "(s.last_offset, s.last_line) > (t.last_offset, t.last_line)"
    update = {f"t.{name}": f"coalesce(t.{name}, s.{name})" for name in _KEEP}
    update |= {
        "t.first_dispatched_ms": "least(t.first_dispatched_ms, s.first_dispatched_ms)",
        "t.consumers": "array_sort(array_union(t.consumers, s.consumers))",
    }
    for name in ("last_dispatched_ms", "last_delivery", "attempts", "handovers"):
        update[f"t.{name}"] = f"greatest(t.{name}, s.{name})"
    for name in ("state", "last_offset", "last_line"):
        update[f"t.{name}"] = f"IF({newer}, s.{name}, t.{name})"
    on = f"{_SAME_MESSAGE} AND {summary.not_before('ended_date', 'ended_ms')}"
    merge(messages.where("added_step IS NULL"), root, MESSAGES, on, update=update)


def _ended(spark: SparkSession, root: str, summary: _BatchSummary) -> DataFrame:
    """Messages that ended no earlier than the batch begins."""
    since = F.to_date(F.timestamp_millis(F.lit(summary.from_ms)))
    messages = read(spark, root, "messages")
    return messages.where(
        (F.col("ended_date") >= since) & (F.col("ended_ms") >= F.lit(summary.from_ms))
    )


# --- evictions and deliveries -------------------------------------------------------------------


def _evictions(
    spark: SparkSession, root: str, messages: DataFrame, summary: _BatchSummary, batch: int
) -> None:
    evicted = messages.where("fate = 'evicted'")
    # Only the table says how messages of earlier batches entered.
    entered = _ended(spark, root, summary).select(*MESSAGE_KEY, *_ENTER_FIELDS)
    older = (
        evicted.where("added_step IS NULL").drop(*_ENTER_FIELDS).join(entered, list(MESSAGE_KEY))
    )
    rows = evicted.where("added_step IS NOT NULL").unionByName(older)
    rows = rows.withColumnsRenamed(
        {"ended_ms": "evicted_ms", "ended_step": "step", "ended_date": "date"}
    )
    append(rows.select(EVICTIONS.schema.names), root, EVICTIONS, STREAM, batch)


def _deliveries(
    spark: SparkSession, root: str, lines: DataFrame, summary: _BatchSummary, batch: int
) -> None:
    settles = lines.where(
        F.col("event").isin("acked", "returned")
        | ((F.col("event") == "expired") & (F.col("delivery") > 0))
    )
    if summary.ends_unnamed:
        # The line lacks the delivery's number, which is the message's last one.
        last = _ended(spark, root, summary).select(*MESSAGE_KEY, "last_delivery")
        unnamed = lines.where(_ends_unnamed()).join(last, list(MESSAGE_KEY))
        unnamed = unnamed.withColumn("delivery", F.col("last_delivery"))
        settles = settles.unionByName(unnamed.where("delivery IS NOT NULL").drop("last_delivery"))
    handed = lines.where(F.col("event") == "dispatched")
    kept = ["partition", "delivery", "queue", "life", "sequence", "id"]
    begun = handed.select(
        *kept, "consumer", "attempt", "handovers", F.col("time_ms").alias("handed_ms"),
        F.col("step").alias("handed_step"),
    )  # fmt: skip
    over = settles.select(
        *kept, F.col("event").alias("how"), F.col("time_ms").alias("settled_ms"),
        F.col("step").alias("settled_step"),
    )  # fmt: skip
    both = begun.unionByName(over, allowMissingColumns=True)
    names = [name for name in both.columns if name not in ("partition", "delivery")]
    rows = both.groupBy("partition", "delivery").agg(
        *(F.first(name, ignorenulls=True).alias(name) for name in names)
    )
    rows = rows.withColumns(
        {
            "held_ms": F.col("settled_ms") - F.col("handed_ms"),
            "settled_date": F.to_date(F.timestamp_millis("settled_ms")),
        }
    )
    update = {f"t.{name}": f"coalesce(t.{name}, s.{name})" for name in [*names, "settled_date"]}
    update["t.held_ms"] = (
        "coalesce(t.settled_ms, s.settled_ms) - coalesce(t.handed_ms, s.handed_ms)"
    )
    on = "t.partition = s.partition AND t.delivery = s.delivery"
    on = f"{on} AND {summary.not_before('settled_date', 'settled_ms')}"
    rows = rows.select(DELIVERIES.schema.names).persist()
    append(rows.where("handed_step IS NOT NULL"), root, DELIVERIES, STREAM, batch)
    merge(rows.where("handed_step IS NULL"), root, DELIVERIES, on, update=update)
    rows.unpersist()
