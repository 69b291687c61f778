"""The lifecycle of each message in the events: every transition and the one before it.

Here `lines` are `AuditData.lines`, `events` the result of `trace`, `events_topic` is the name of
the events topic, and `opening` what earlier periods have left open.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ringfaust.protocol.lifecycle import ABOUT_MESSAGES, ENDED, ENTRY_EVENTS, WITHOUT_STEP
from ringfaust.spark.audit.balance import Balance, joined
from ringfaust.spark.audit.findings import Kind, finding, or_none
from ringfaust.spark.lines import IS_LEGAL, REFUSAL, STATE_AFTER, number_generations

CARRIED = -1
"""`nth` of a line from an earlier period, which has checked and counted it."""
_MAX_NAMED = 10_000
"""Longest run of missing numbers that is listed one by one; a longer run is given as a range."""

_PLACE = ("step", "offset", "line")


def trace(lines: DataFrame, opening: Balance | None = None) -> DataFrame:
    """Relate each line to the line before it of the same message.

    Returns:
        All lines with these columns added:
        `nth`: 1, or more if the identical line occurred before; 0 for a damaged line; CARRIED for a
        line of an earlier period;
        `generation`: how often a queue of this name had been deleted before;
        `about`: the line is about a message. For those, if `nth` is 1, also
        `state` after the event, `before` (the previous event of the message), `was` and
        `was_delivery` (the state and delivery before), `source`, `first` and `last`, `outlasts`
        (the message is open after its last line) and `base` (the queue's last sequence number in
        earlier periods).
    """
    good = number_generations(lines.drop("raw"), "partition", "queue").drop("generations")
    about = F.col("event").isin(*ABOUT_MESSAGES) & ~F.expr(REFUSAL)
    good = good.withColumns({
        "about": about, "spot": F.coalesce("sequence", "step"), "scope": F.coalesce("queue", "by"),
    })  # fmt: skip
    base = F.lit(0).cast("long")
    if opening is not None:
        numbered = opening.frames.queues.select("partition", "queue", "highest")
        good = good.join(F.broadcast(numbered), ["partition", "queue"], "left")
        base = F.when(F.col("generation") == 0, F.coalesce("highest", base)).otherwise(base)
    good = good.withColumn("base", base).drop("highest")
    # Every window below is partitioned by these columns or more, so that one shuffle is enough.
    group_columns = ("partition", "scope", "spot")
    same = Window.partitionBy(*group_columns, "step", "event", "content").orderBy("offset", "line")
    nth = F.when(_is_damaged(), 0).otherwise(F.row_number().over(same))
    good = good.repartition(*group_columns).withColumn("nth", nth)
    message = Window.partitionBy(*group_columns, "about", "generation", F.col("nth") == 1).orderBy(
        *_PLACE
    )
    so_far = message.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = message.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    events = good.withColumns({
        "state": F.expr(STATE_AFTER),
        "before": F.lag("event").over(message),
        "was_delivery": F.lag("delivery").over(message),
        "source": F.when(
            F.col("about"), F.first("source", ignorenulls=True).over(so_far)
        ).otherwise(F.col("source")),
        "last": F.lead("event").over(message).isNull(),
    })  # fmt: skip
    # A message with a number that was used before, and that is not open, has ended.
    has_ended = F.col("before").isNull() & F.col("about") & (F.col("sequence") <= F.col("base"))
    return events.withColumns({
        "was": F.when(has_ended & ~F.col("carried"), ENDED).otherwise(
            F.lag("state").over(message)
        ),
        "outlasts": F.col("about") & (F.last("state").over(whole) != ENDED),
        "first": F.col("before").isNull(),
        "nth": F.when(F.col("carried"), CARRIED).otherwise(F.col("nth")),
    }).drop("scope", "spot")  # fmt: skip


def _is_damaged() -> Column:
    nameless = F.col("event").isin(*ABOUT_MESSAGES) & (
        F.col("queue").isNull() | F.col("sequence").isNull()
    )
    nameless = nameless & ~(F.expr(REFUSAL) & F.col("reason").isin("limit", "too_large"))
    return F.col("step").isNull() | F.col("event").isNull() | F.col("by").isNull() | nameless


def message_events(events: DataFrame) -> DataFrame:
    """The lines about messages, without repeats."""
    return events.filter("nth = 1 and about")


def transitions(events: DataFrame, events_topic: str) -> DataFrame:
    """Findings: events that cannot follow the previous event of their message."""
    wrong = message_events(events).filter(f"NOT {IS_LEGAL}")
    event, was = F.col("event"), F.col("was")
    kind = (
        F.when((event == "evicted") & (was == "delivering"), Kind.EVICTED_WHILE_HELD)
        .when(was.isNull(), Kind.MISSING)
        .when((was == ENDED) | event.isin(*ENTRY_EVENTS), Kind.DOUBLED)
        .otherwise(Kind.ILLEGAL)
    )
    text = F.concat(
        event, F.lit(" while "),
        F.when(was.isNull(), "not in the queue").when(was == ENDED, "no longer in the queue")
        .otherwise(was), F.when(event == "evicted", F.concat(F.lit(" ("), "reason", F.lit(")")))
        .otherwise(""),
    )  # fmt: skip
    return finding(wrong, kind, text, record=line_position(events_topic))


def line_position(events_topic: str) -> Column:
    """The position of a line's record in the events topic."""
    return F.concat_ws("/", F.lit(events_topic), "partition", "offset")


def damaged(events: DataFrame, events_topic: str) -> DataFrame:
    """Findings: records of the events topic with damaged lines."""
    said = "%d of its lines are damaged, the first is line %d (counted from 0)"
    return _bad_records(events.filter("nth = 0"), Kind.DAMAGED, said, "line", events_topic)


def repeated(events: DataFrame, events_topic: str) -> DataFrame:
    """Findings: records of the events topic with exact copies of earlier lines."""
    said = "%d of its lines are copies of earlier lines, the first is of step %d"
    return _bad_records(events.filter("nth > 1"), Kind.DOUBLED, said, "step", events_topic)


def _bad_records(bad: DataFrame, kind: Kind, said: str, number: str, topic: str) -> DataFrame:
    """Findings: the records of these lines, with their count and the lowest `number` of them."""
    found = bad.groupBy("partition", "offset").agg(
        F.count("*").alias("count"), F.min(number).alias("lowest")
    )
    text = F.format_string(said, "count", "lowest")
    return finding(found, kind, text, record=line_position(topic))


def open_lines(events: DataFrame, lines: DataFrame, undecided: DataFrame) -> DataFrame:
    """The lines that the next period needs: `AuditData.lines` with `carried`.

    `undecided` are the lines of sends that wait for the decision about their transaction.
    """
    of_open = events.filter("nth in (1, -1) and outlasts and (first or last)")
    kept = of_open.unionByName(undecided).withColumns({
        "carried": F.lit(True), "raw": F.lit(None).cast("string")
    })  # fmt: skip
    return kept.select(lines.columns)


def highest_numbers(events: DataFrame, opening: Balance | None) -> DataFrame:
    """The highest step and delivery of each partition: partition, step, delivery."""
    found = events.filter("nth = 1").groupBy("partition").agg(
        F.max(F.when(_has_step(), F.col("step"))).alias("step"), F.max("delivery").alias("delivery")
    )  # fmt: skip
    both = joined(found, opening, "partitions")
    return both.groupBy("partition").agg(
        *[F.coalesce(F.max(name), F.lit(0)).alias(name) for name in ("step", "delivery")]
    )


def steps(events: DataFrame, events_topic: str, opening: Balance | None = None) -> DataFrame:
    """Findings: records of the events topic whose steps go back.

    A gap is no fault: a sweep that changes nothing takes a step number too. Lost lines show up in
    the sequence and delivery numbers, which have no gaps.
    """
    numbers = F.sort_array(F.collect_list(F.struct("line", "step")))["step"]
    records = events.filter(_has_step() & (F.col("nth") == 1)).groupBy("partition", "offset").agg(
        F.min("step").alias("low"), F.max("step").alias("high"), numbers.alias("steps"),
    )  # fmt: skip
    records = records.withColumn("sorted", F.col("steps") == F.sort_array("steps")).drop("steps")
    if opening is not None:
        earlier = opening.frames.partitions.selectExpr("partition", "-1L AS offset", "step AS high")
        records = records.unionByName(earlier, allowMissingColumns=True)
    before = Window.partitionBy("partition").orderBy("offset")
    records = records.withColumn("before", F.lag("high").over(before))
    wrong = records.filter("not sorted or low < before")
    said = "its steps go from %d to %d, after step %s"
    text = F.format_string(said, "low", "high", or_none(F.col("before")))
    return finding(wrong, Kind.DISORDERED, text, record=line_position(events_topic))


def _has_step() -> Column:
    """Whether the line has a step of its own."""
    # With `clock: log`, an idle tick leaves a line with the number of the previous step.
    return ~F.col("event").isin(*WITHOUT_STEP) & ~F.col("command").eqNullSafe(F.lit("tick"))


def input_gaps(events: DataFrame, lines: DataFrame) -> list[str]:
    """Offsets that workers reported as gone before they were processed (R112).

    Each is `topic/partition/first-last`; without `last` if nobody knows where the log ended.
    """
    if events.filter("event = 'gap'").isEmpty():  # as mostly; then nothing is read again
        return []
    found = lines.filter("event = 'gap'")
    topic, number, first, last = (
        F.get_json_object("raw", f"$.{name}") for name in ("topic", "partition", "first", "last")
    )
    text = F.concat_ws("/", topic, number, F.concat(first, F.lit("-"), F.coalesce(last, F.lit(""))))
    return sorted(row["gap"] for row in found.select(text.alias("gap")).distinct().collect())


def sequence_gaps(events: DataFrame) -> DataFrame:
    """Findings: missing sequence numbers; each queue counts from 1 without gaps (§1)."""
    entered = message_events(events).filter(
        F.col("event").isin(*ENTRY_EVENTS) & F.col("first") & (F.col("sequence") > F.col("base"))
    )
    text = F.lit("no event records its entry")
    queue = ("partition", "queue", "generation")
    gaps = _gaps(entered, queue, "sequence")
    return finding(gaps, Kind.MISSING, _range_text(text, "sequence"))


def delivery_gaps(
    events: DataFrame, outputs: DataFrame, opening: Balance | None = None
) -> DataFrame:
    """Findings: missing delivery numbers; each partition counts from 1 without gaps.

    `match.differences` reports those that have a record in the dispatched topic.
    """
    delivered = message_events(events).filter("event = 'dispatched'").drop("base")
    base = F.lit(0).cast("long")
    if opening is not None:
        earlier = opening.frames.partitions.select("partition", F.col("delivery").alias("earlier"))
        delivered = delivered.join(F.broadcast(earlier), "partition", "left")
        base = F.coalesce("earlier", base)
    gaps = _gaps(delivered.withColumn("base", base), ("partition",), "delivery")
    recorded = outputs.filter("role = 'dispatched'").selectExpr(
        "partition", "bigint(delivery) delivery"
    )
    gaps = gaps.join(recorded, ["partition", "delivery"], "left_anti")
    text = F.format_string("no event for delivery %d", "delivery")
    where = F.format_string("delivery %d of partition %d", "delivery", "partition")
    return finding(gaps, Kind.MISSING, _range_text(text, "delivery"), record=where)


def _gaps(frame: DataFrame, group_columns: tuple[str, ...], number: str) -> DataFrame:
    """The missing numbers of each group: one row each, or one row with `until` for a long run.

    The numbers go on after `base`.
    """
    totals = frame.groupBy(*group_columns).agg(
        F.count("*").alias("_count"), F.max(F.col(number) - F.col("base")).alias("_most"),
        F.min(F.col(number) - F.col("base")).alias("_least"),
    )  # fmt: skip
    # Most groups have no gap and need no sorting.
    holed = totals.filter("_count <> _most or _least <> 1").select(*group_columns)
    low = F.coalesce(
        F.lag(number).over(Window.partitionBy(*group_columns).orderBy(number)), F.col("base")
    )
    found = frame.join(F.broadcast(holed), list(group_columns), "left_semi").select(
        *group_columns, (low + 1).alias("low"), (F.col(number) - 1).alias("high")
    )
    few = F.col("high") - F.col("low") < _MAX_NAMED
    each = F.when(few, F.sequence("low", "high")).otherwise(F.array("low"))
    return found.filter("low <= high").select(
        *group_columns, F.explode(each).alias(number), F.when(~few, F.col("high")).alias("until")
    )


def _range_text(text: Column, number: str) -> Column:
    """The text, and for a long run its ends."""
    run = F.format_string("%s (none from %d to %d)", text, number, "until")
    return F.when(F.col("until").isNull(), text).otherwise(run)
