"""The lives of messages, as the events tell: each transition after the one before it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ringfaust.spark.audit.findings import (
    DAMAGED,
    DISORDERED,
    DOUBLED,
    HELD,
    ILLEGAL,
    MISSING,
    finding,
    shown,
)
from ringfaust.spark.lines import is_refusal

ENTERS = ("added", "scheduled")
LEAVES = ("acked", "evicted", "expired", "dead", "removed", "moved_out", "lost")
_OF_A_MESSAGE = (*ENTERS, "due", "dispatched", "returned", *LEAVES)
_STATES = {"added": "ready", "scheduled": "scheduled", "due": "ready", "dispatched": "delivering"}
_NO_STEP = ("refused", "unreadable")
"""Lines that stand for no step of their own."""
_MOST_NAMED = 10_000
"""So many missing numbers in a row are named one by one; of more the first and last."""

_PLACE = ("step", "offset", "line")


def tell(lines: DataFrame) -> DataFrame:
    """The lines, each with what it is to its message.

    Args:
        lines: as `sources.Material.lines`.

    Returns:
        All lines, and beside their fields: `nth`, more than 1 where the very same line was told
        before, and 0 of a line that makes no sense; `life`, which queue of that name (it may be
        deleted and come again); `about` (it is about a message); and for those, if nth is 1:
        `state` after it, `before` (the event before it of the same message), `was` (the state
        then), `was_delivery`, `source`, `first` and `last`.
    """
    # By their text first: few lines are to be parsed once more.
    deleted = lines.filter("contains(raw, '\"deleted\"') and event = 'deleted'")
    ends = deleted.groupBy("partition", "queue").agg(F.collect_set("step").alias("ends"))
    good = lines.drop("raw").join(F.broadcast(ends), ["partition", "queue"], "left")
    life = F.size(F.filter(F.coalesce("ends", F.array().cast("array<long>")), _is_before_line))
    about = F.col("event").isin(*_OF_A_MESSAGE) & ~is_refusal()
    good = good.withColumns({
        "life": life, "about": about, "spot": F.coalesce("sequence", "step"),
        "told_in": F.coalesce("queue", "by"),
    }).drop("ends")  # fmt: skip
    # All windows below are of this or finer: one shuffle serves them.
    home = ("partition", "told_in", "spot")
    same = Window.partitionBy(*home, "step", "event", "content").orderBy("offset", "line")
    nth = F.when(_is_damaged(), 0).otherwise(F.row_number().over(same))
    good = good.repartition(*home).withColumn("nth", nth)
    message = Window.partitionBy(*home, "about", "life", F.col("nth") == 1).orderBy(*_PLACE)
    so_far = message.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    told = good.withColumns({
        "state": _state(),
        "before": F.lag("event").over(message),
        "was_delivery": F.lag("delivery").over(message),
        "source": F.when(
            F.col("about"), F.first("source", ignorenulls=True).over(so_far)
        ).otherwise(F.col("source")),
        "last": F.lead("event").over(message).isNull(),
    })  # fmt: skip
    return told.withColumns({
        "was": F.lag("state").over(message), "first": F.col("before").isNull()
    }).drop("told_in", "spot")  # fmt: skip


def _is_damaged() -> Column:
    nameless = F.col("event").isin(*_OF_A_MESSAGE) & (
        F.col("queue").isNull() | F.col("sequence").isNull()
    )
    nameless = nameless & ~(is_refusal() & F.col("reason").isin("limit", "too_large"))
    return F.col("step").isNull() | F.col("event").isNull() | F.col("by").isNull() | nameless


def _is_before_line(end: Column) -> Column:
    return end < F.col("step")


def _state() -> Column:
    event = F.col("event")
    state = F.when(event == "returned", F.when(F.col("due_ms") > 0, "scheduled").otherwise("ready"))
    for name, after in _STATES.items():
        state = state.when(event == name, after)
    return state.when(event.isin(*LEAVES), "gone")


def once(told: DataFrame) -> DataFrame:
    """Lines about messages, repeats left away."""
    return told.filter("nth = 1 and about")


def _is_legal() -> Column:
    """May this line follow the one before it (docs/protocol.md, Events)?"""
    event, was, reason = F.col("event"), F.col("was"), F.col("reason")
    held = was == "delivering"
    waits = was.isin("ready", "scheduled")
    same_delivery = F.col("delivery") == F.col("was_delivery")
    legal = (
        F.when(event.isin(*ENTERS), was.isNull())
        .when(event == "due", was == "scheduled")
        .when(event == "dispatched", was == "ready")
        .when(event.isin("acked", "returned"), held & same_delivery)
        .when(event == "dead", held)
        .when((event == "evicted") & (reason == "return_overflow"), held)
        .when((event == "evicted") & (reason == "scheduled_overflow"), waits)
        .when((event == "evicted") & (reason == "limit"), waits)
        .when(event == "evicted", was == "ready")
        .when(event == "lost", held | waits)
        .when((event == "expired") & (F.col("delivery") > 0), held & same_delivery)
        .otherwise(waits)
    )
    return F.coalesce(legal, F.lit(False))


def transitions(told: DataFrame, events: str) -> DataFrame:
    """Findings: lines that cannot follow what was before. `events`: the topic's name."""
    wrong = once(told).filter(~_is_legal())
    event, was = F.col("event"), F.col("was")
    kinds = {
        HELD: (event == "evicted") & (was == "delivering"),
        MISSING: was.isNull(),
        DOUBLED: (was == "gone") | event.isin(*ENTERS),
    }
    kind = F.lit(ILLEGAL)
    for name, condition in reversed(kinds.items()):
        kind = F.when(condition, name).otherwise(kind)
    text = F.concat(
        F.lit("it was "), event, F.lit(" while "),
        F.when(was.isNull(), "it was not in the queue").when(was == "gone", "it had left the queue")
        .otherwise(was), F.when(event == "evicted", F.concat(F.lit(" ("), "reason", F.lit(")")))
        .otherwise(""),
    )  # fmt: skip
    return finding(wrong, kind, text, record=line_position(events))


def line_position(events: str) -> Column:
    """Where a line stands: the position of its record in the events topic."""
    return F.concat_ws("/", F.lit(events), "partition", "offset")


def damaged(told: DataFrame, events: str) -> DataFrame:
    """Findings: records of events with lines that make no sense."""
    bad = told.filter("nth = 0").groupBy("partition", "offset").agg(
        F.count("*").alias("count"), F.min("line").alias("line_first")
    )  # fmt: skip
    text = F.concat(
        F.col("count").cast("string"), F.lit(" of its lines make no sense, the first is line "),
        F.col("line_first").cast("string"), F.lit(", counted from 0"),
    )  # fmt: skip
    return finding(bad, DAMAGED, text, record=line_position(events))


def repeated(told: DataFrame, events: str) -> DataFrame:
    """Findings: records of events with lines that were told before, word by word."""
    again = told.filter("nth > 1").groupBy("partition", "offset").agg(
        F.count("*").alias("count"), F.min("step").alias("step")
    )  # fmt: skip
    text = F.concat(
        F.col("count").cast("string"), F.lit(" of its lines were told before, the first of step "),
        F.col("step").cast("string"),
    )  # fmt: skip
    return finding(again, DOUBLED, text, record=line_position(events))


def steps(told: DataFrame, events: str) -> DataFrame:
    """Findings: records of events whose steps go back.

    Gaps are none: a sweep that finds nothing to tell takes a number too. What is lost shows in the
    numbers of messages and deliveries, which have no gaps.
    """
    # Idle ticks of a clock that is told leave a line that shows the step before.
    counted = ~F.col("event").isin(*_NO_STEP) & ~F.col("command").eqNullSafe(F.lit("tick"))
    numbers = F.sort_array(F.collect_list(F.struct("line", "step")))["step"]
    records = told.filter(counted & (F.col("nth") == 1)).groupBy("partition", "offset").agg(
        F.min("step").alias("low"), F.max("step").alias("high"), numbers.alias("steps"),
    )  # fmt: skip
    records = records.withColumn("sorted", F.col("steps") == F.sort_array("steps")).drop("steps")
    before = Window.partitionBy("partition").orderBy("offset")
    records = records.withColumn("before", F.lag("high").over(before))
    wrong = records.filter("not sorted or low < before")
    text = F.concat(
        F.lit("its steps go from "), F.col("low").cast("string"), F.lit(" to "),
        F.col("high").cast("string"), F.lit(", after step "), shown(F.col("before")),
    )  # fmt: skip
    return finding(wrong, DISORDERED, text, record=line_position(events))


def sequence_gaps(told: DataFrame) -> DataFrame:
    """Findings: numbers that no message of a queue has; they count from 1, by one (§1)."""
    entered = once(told).filter(F.col("event").isin(*ENTERS) & F.col("first"))
    text = F.lit("no event tells that it entered")
    queue = ("partition", "queue", "life")
    gaps = _gaps(entered, queue, "sequence")
    return finding(gaps, MISSING, _range_text(text, F.col("sequence"), F.col("until")))


def delivery_gaps(told: DataFrame, outputs: DataFrame) -> DataFrame:
    """Findings: numbers that no delivery of a partition has; they count from 1, by one.

    Those that have a record on the dispatched topic are named by it, see `match.py`.
    """
    gaps = _gaps(once(told).filter("event = 'dispatched'"), ("partition",), "delivery")
    seen = outputs.filter("role = 'dispatched'").selectExpr(
        "partition", "bigint(delivery) delivery"
    )
    gaps = gaps.join(seen, ["partition", "delivery"], "left_anti")
    text = F.concat(F.lit("no event tells of delivery "), F.col("delivery").cast("string"))
    where = F.concat(
        F.lit("delivery "), "delivery", F.lit(" of partition "), F.col("partition").cast("string")
    )
    return finding(
        gaps, MISSING, _range_text(text, F.col("delivery"), F.col("until")), record=where
    )


def _gaps(frame: DataFrame, home: tuple[str, ...], number: str) -> DataFrame:
    """The missing numbers of each home, one by one, or up to `until` where they are many."""
    totals = frame.groupBy(*home).agg(
        F.count("*").alias("_count"), F.max(number).alias("_most"), F.min(number).alias("_least")
    )
    # Most homes have none, and need no sorting.
    holed = totals.filter("_count <> _most or _least <> 1").select(*home)
    low = F.coalesce(F.lag(number).over(Window.partitionBy(*home).orderBy(number)), F.lit(0))
    found = frame.join(F.broadcast(holed), list(home), "left_semi").select(
        *home, (low + 1).alias("low"), (F.col(number) - 1).alias("high")
    )
    few = F.col("high") - F.col("low") < _MOST_NAMED
    each = F.when(few, F.sequence("low", "high")).otherwise(F.array("low"))
    return found.filter("low <= high").select(
        *home, F.explode(each).alias(number), F.when(~few, F.col("high")).alias("until")
    )


def _range_text(text: Column, low: Column, until: Column) -> Column:
    to = F.concat(
        F.lit(", nor of any from "), low.cast("string"), F.lit(" to "), until.cast("string")
    )
    return F.concat(text, F.coalesce(to, F.lit("")))
