"""Transitions → the lives of messages, evictions and deliveries, batch by batch.

What begins in a batch is appended, once; what began before is merged by identity, with values that
do not depend on how often. A merge looks at what is still open, and at what ended no earlier than
the batch begins. So the work is bounded by the batch and by what the queues hold, not by the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.lake import minutes
from ringfaust.spark.lake.lifecycles import KEY, with_life
from ringfaust.spark.lake.store import Marks, append, merge
from ringfaust.spark.lake.tables import DELIVERIES, EVICTIONS, MESSAGES, read

STREAM = "gold"
ENDS = ("acked", "evicted", "expired", "dead", "removed", "moved_out", "lost")
_ENTERS = ("added", "scheduled")
_SAME_MESSAGE = " AND ".join(f"t.{name} = s.{name}" for name in KEY)


@dataclass(frozen=True, slots=True)
class _Extent:
    """What a batch of transitions holds."""

    from_ms: int
    entered: int
    """Lines by which a message enters."""
    evicted: int
    """Lines by which one is evicted."""
    deliveries: int
    """Lines that begin or end a delivery."""
    ends_unnamed: int
    """Lines that end a delivery without its number."""

    def not_before(self, date: str, time: str) -> str:
        """A condition on `t`: what is open, or ended since the batch begins."""
        since = f"DATE(TIMESTAMP_MILLIS({self.from_ms}))"
        return f"(t.{date} IS NULL OR (t.{date} >= {since} AND t.{time} >= {self.from_ms}))"


def catch_up(spark: SparkSession, root: str, batch: int) -> None:
    """Apply the batches that gold has not seen, up to this one; all of them, if it is new.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        batch: the last batch of `transitions`.
    """
    marks = Marks(spark, root, STREAM)
    for number in range(marks.batch + 1, batch + 1):
        _apply(spark, root, number)
        marks.save(number)


def _apply(spark: SparkSession, root: str, batch: int) -> None:
    transitions = read(spark, root, "transitions").where(F.col("batch") == batch)
    # Not kept in memory: each reader needs some columns, and the file is read faster than that.
    lines = with_life(spark, root, transitions, batch)
    extent = _extent(lines)
    if extent is not None:
        minutes.write(spark, root, lines, batch)  # first: it asks what messages were before
        messages = _told(lines).persist()
        _messages(root, messages, extent, batch)
        if extent.evicted:
            _evictions(spark, root, messages, extent, batch)
        if extent.deliveries:
            _deliveries(spark, root, lines, extent, batch)
        messages.unpersist()


def _extent(lines: DataFrame) -> _Extent | None:
    """None: the batch has no line."""
    settles = ("dispatched", "acked", "returned", "dead")
    row = lines.agg(
        F.min("time_ms"),
        F.count_if(F.col("event").isin(*_ENTERS)),
        F.count_if(F.col("event") == "evicted"),
        F.count_if(F.col("event").isin(*settles) | (F.col("delivery") > 0)),
        F.count_if(_ends_unnamed()),
    ).collect()[0]
    return None if row[0] is None else _Extent(*row)


def _ends_unnamed() -> Column:
    return (F.col("event") == "dead") | (F.col("reason") == "return_overflow")


def _state_after() -> Column:
    """Where a message stands after a line about it; null: as before."""
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
"""Told once of a message: what is there stays."""


def _told(lines: DataFrame) -> DataFrame:
    """What the batch tells of each message: the columns of `messages`, `ready` and `ring_size`.

    `added_step` is null of those that began before.
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
    # Sorting begins with the column that tells most messages apart.
    rows = about.groupBy(*reversed(KEY)).agg(
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
            *KEY, "id", "entered.*", "end.*", "first_dispatched_ms", "last_dispatched_ms",
            "last_delivery", "attempts", "handovers", "consumers", "last.state",
            F.col("last.offset").alias("last_offset"), F.col("last.line").alias("last_line"),
        )
        .withColumn("enqueued_ms", F.coalesce("enqueued_ms", evicted_ms))
        .withColumn("ended_date", F.to_date(F.timestamp_millis("ended_ms")))
    )  # fmt: skip


def _messages(root: str, messages: DataFrame, extent: _Extent, batch: int) -> None:
    if extent.entered:
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
    on = f"{_SAME_MESSAGE} AND {extent.not_before('ended_date', 'ended_ms')}"
    merge(messages.where("added_step IS NULL"), root, MESSAGES, on, update=update)


def _ended(spark: SparkSession, root: str, extent: _Extent) -> DataFrame:
    """Messages that ended since the batch begins."""
    since = F.to_date(F.timestamp_millis(F.lit(extent.from_ms)))
    messages = read(spark, root, "messages")
    return messages.where(
        (F.col("ended_date") >= since) & (F.col("ended_ms") >= F.lit(extent.from_ms))
    )


# --- evictions and deliveries -------------------------------------------------------------------


def _evictions(
    spark: SparkSession, root: str, messages: DataFrame, extent: _Extent, batch: int
) -> None:
    evicted = messages.where("fate = 'evicted'")
    # How those entered that began before stands in the table only.
    whole = _ended(spark, root, extent).select(*KEY, *_ENTER_FIELDS)
    older = evicted.where("added_step IS NULL").drop(*_ENTER_FIELDS).join(whole, list(KEY))
    rows = evicted.where("added_step IS NOT NULL").unionByName(older)
    rows = rows.withColumnsRenamed(
        {"ended_ms": "evicted_ms", "ended_step": "step", "ended_date": "date"}
    )
    append(rows.select(EVICTIONS.schema.names), root, EVICTIONS, STREAM, batch)


def _deliveries(
    spark: SparkSession, root: str, lines: DataFrame, extent: _Extent, batch: int
) -> None:
    settles = lines.where(
        F.col("event").isin("acked", "returned")
        | ((F.col("event") == "expired") & (F.col("delivery") > 0))
    )
    if extent.ends_unnamed:
        # Of these the line does not tell the number: it is the message's last.
        last = _ended(spark, root, extent).select(*KEY, "last_delivery")
        unnamed = lines.where(_ends_unnamed()).join(last, list(KEY))
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
    on = f"{on} AND {extent.not_before('settled_date', 'settled_ms')}"
    rows = rows.select(DELIVERIES.schema.names).persist()
    append(rows.where("handed_step IS NOT NULL"), root, DELIVERIES, STREAM, batch)
    merge(rows.where("handed_step IS NULL"), root, DELIVERIES, on, update=update)
    rows.unpersist()
