"""Records of the events topic → transitions: each line once, the bad and the late set aside.

Lines are read and written the short way (`short_way`), or, where that will not do, by Spark.

A line may come again: Spark's Kafka sink repeats part of a micro-batch after a crash. In a topic
that repeats nothing steps never go back, so only a line whose step is not beyond all that its
partition has told before can be a repeat. Such lines are looked up, by partition, step and text;
all others are new, and the look-up stays small however large the table is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from ringfaust.spark.lake import arrow_writer as short_way
from ringfaust.spark.lake.profile import Record, as_text, step_of, survey
from ringfaust.spark.lake.store import Marks, append
from ringfaust.spark.lake.tables import QUARANTINE, REPEATS, TRANSITIONS, read
from ringfaust.spark.lines import read_lines

STREAM = "events"
_KEY = ["partition", "offset", "line"]
_PLAN = "partition int, offset long, ceiling long, look array<struct<low:long,high:long>>"
_RANGES_AT_ONCE = 50
"""In one look-up; beyond that their bounds are looked up instead."""


@dataclass(frozen=True, slots=True)
class _Suspects:
    """Where a batch may repeat something."""

    plan: list[tuple[int, int, int, list[tuple[int, int]]]]
    """(partition, offset, ceiling, ranges of steps to look at); ceiling: highest step before."""
    known: dict[int, list[tuple[int, int]]]
    """By partition: ranges of steps that earlier batches may have told."""


@dataclass(frozen=True, slots=True)
class _Dropped:
    """Lines that do not go into transitions."""

    lines: DataFrame
    """Their places; `why` is null for a repeat, else `late`."""
    counts: list[Row]
    """How many, by partition and why."""


def write(spark: SparkSession, root: str, topic: str, batch: int) -> None:
    """Read the batch from bronze and write its transitions, repeats and quarantine.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        topic: the events topic.
        batch: a number of the stream `events`; it is in bronze.
    """
    marks = Marks(spark, root, STREAM)
    if marks.batch >= batch:
        return
    found = (
        read(spark, root, "bronze")
        .where((F.col("topic") == topic) & (F.col("batch") == batch))
        .select("topic", "partition", "offset", "timestamp", "value")
    )
    short = short_way.translate(spark, root, found, batch)
    records, bronze = survey(found) if short is None else (short.records, as_text(found))
    before = {partition: mark for (_, partition), mark in marks.by_partition.items()}
    dropped = _dropped(spark, root, bronze, _suspects(records, before), batch)
    if short is not None and dropped is None:
        short.commit(STREAM, batch)
    else:
        if short is not None:
            short.discard()
        told = sum(record.lines for record in records)
        _long_way(root, topic, bronze, batch, told=told, dropped=dropped)
    if dropped is not None:
        dropped.lines.unpersist()
    for record in records:
        if record.high is not None:
            marks.raise_to(topic, record.partition, record.high)
    marks.save(batch)


def _long_way(
    root: str, topic: str, bronze: DataFrame, batch: int, *, told: int, dropped: _Dropped | None
) -> None:
    """What Spark reads of any lines; `told`: how many there are."""
    lines = read_lines(bronze)
    if dropped is not None:
        told -= sum(row["count"] for row in dropped.counts)
        lines = lines.join(F.broadcast(dropped.lines.drop("why")), _KEY, "left_anti")
    is_good = F.col("step").isNotNull() & F.col("event").isNotNull()
    append(_shaped(lines.where(is_good), batch), root, TRANSITIONS, STREAM, batch)
    bad = lines.where(~is_good).select(*_KEY, "timestamp", "raw", _why_bad().alias("why"))
    some_late = False
    if dropped is not None:
        some_late = any(row.why for row in dropped.counts)
        bad = bad.unionByName(_late(bronze, dropped.lines))
        _tell_repeats(root, topic, dropped, batch)
    if some_late or _count(bronze.sparkSession, root, batch) < told:
        quarantine = bad.withColumns(
            {
                "topic": F.lit(topic),
                "batch": F.lit(batch).cast("long"),
                "date": F.to_date("timestamp"),
            }
        )
        append(quarantine.select(QUARANTINE.schema.names), root, QUARANTINE, STREAM, batch)


def _tell_repeats(root: str, topic: str, dropped: _Dropped, batch: int) -> None:
    repeats = [
        ("transitions", topic, row.partition, batch, row["count"])
        for row in dropped.counts
        if not row.why
    ]
    if repeats:
        told = dropped.lines.sparkSession.createDataFrame(repeats, REPEATS.schema).coalesce(1)
        append(told, root, REPEATS, STREAM, batch)


def _suspects(records: Sequence[Record], before: dict[int, int]) -> _Suspects:
    """Which steps of which records are not beyond all that was told before them."""
    highest = dict(before)
    looked: dict[int, list[tuple[int, int]]] = {}
    ceilings: dict[tuple[int, int], int] = {}
    for record in records:
        if record.low is None or record.high is None:
            continue
        ceiling = highest.get(record.partition, -1)
        ceilings[record.partition, record.offset] = ceiling
        if record.low <= ceiling:
            span = (record.low, min(record.high, ceiling))
            looked.setdefault(record.partition, []).append(span)
        if record.doubled:
            looked.setdefault(record.partition, []).append((record.low, record.high))
        highest[record.partition] = max(ceiling, record.high)
    merged = {partition: _merged(spans) for partition, spans in looked.items()}
    plan = []
    for record in records:
        if record.low is None or record.high is None:
            continue
        spans = [
            (low, high)
            for low, high in merged.get(record.partition, ())
            if low <= record.high and record.low <= high
        ]
        if spans:
            ceiling = ceilings[record.partition, record.offset]
            plan.append((record.partition, record.offset, ceiling, spans))
    known = {
        partition: [(low, min(high, before[partition])) for low, high in spans
                    if low <= before[partition]]
        for partition, spans in merged.items()
        if partition in before
    }  # fmt: skip
    return _Suspects(plan, {partition: spans for partition, spans in known.items() if spans})


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same steps in ranges that do not touch."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def _dropped(
    spark: SparkSession, root: str, bronze: DataFrame, suspects: _Suspects, batch: int
) -> _Dropped | None:
    """Lines that do not go into transitions; None: there are none."""
    if not suspects.plan:
        return None
    lines = _again_or_late(spark, root, bronze, suspects, batch).persist()
    counts = lines.groupBy("partition", "why").count().collect()
    if counts:
        return _Dropped(lines, counts)
    lines.unpersist()
    return None


def _again_or_late(
    spark: SparkSession, root: str, bronze: DataFrame, suspects: _Suspects, batch: int
) -> DataFrame:
    """`why` is null for a repeat, else `late`."""
    plan = spark.createDataFrame(suspects.plan, _PLAN)
    lines = (
        bronze.join(F.broadcast(plan), ["partition", "offset"])
        .select(
            "partition", "offset", "ceiling", "look",
            F.posexplode(F.split("value", "\n")).alias("line", "raw"),
        )
        .withColumn("step", step_of(F.col("raw")))
        .where(F.exists("look", lambda span: F.col("step").between(span.low, span.high)))
        .where(F.get_json_object("raw", "$").isNotNull())  # else it is bad, not told before
    )  # fmt: skip
    same = Window.partitionBy("partition", "step", "raw").orderBy("offset", "line")
    again = lines.withColumn("is_repeat", F.row_number().over(same) > 1)
    if suspects.known:
        told = (
            read(spark, root, "transitions")
            .where((F.col("batch") < batch) & _any_span(suspects.known))
            .select("partition", "step", "raw", F.lit(True).alias("is_known"))
        )
        again = again.join(told, ["partition", "step", "raw"], "left").withColumn(
            "is_repeat", F.col("is_repeat") | F.coalesce("is_known", F.lit(False))
        )
    # A refused command shows the last step, a record unreadable before the hop step 0.
    is_late = (F.col("step") < F.col("ceiling")) & (F.col("step") > 0)
    why = F.when(~F.col("is_repeat"), F.lit("late"))
    return again.where(F.col("is_repeat") | is_late).select(*_KEY, why.alias("why"))


def _any_span(known: dict[int, list[tuple[int, int]]]) -> Column:
    found = F.lit(False)
    for partition, spans in known.items():
        if len(spans) > _RANGES_AT_ONCE:
            spans = [(spans[0][0], spans[-1][1])]  # noqa: PLW2901
        for low, high in spans:
            found |= (F.col("partition") == partition) & F.col("step").between(low, high)
    return found


def _shaped(lines: DataFrame, batch: int) -> DataFrame:
    """As the table has it; by the day of the decision."""
    day = F.to_date(F.timestamp_millis("time_ms"))
    return lines.withColumns(
        {"batch": F.lit(batch).cast("long"), "date": F.coalesce(day, F.to_date("timestamp"))}
    ).select(TRANSITIONS.schema.names)


def _count(spark: SparkSession, root: str, batch: int) -> int:
    return read(spark, root, "transitions").where(F.col("batch") == batch).count()


def _why_bad() -> Column:
    """What a line lacks."""
    return (
        F.when(F.get_json_object("raw", "$").isNull(), "no_json")
        .when(F.col("step").isNull(), "no_step")
        .otherwise("no_event")
    )


def _late(bronze: DataFrame, dropped: DataFrame) -> DataFrame:
    """The lines that came too late, whole."""
    lines = bronze.select(
        "partition",
        "offset",
        "timestamp",
        F.posexplode(F.split("value", "\n")).alias("line", "raw"),
    )
    late = dropped.where(F.col("why").isNotNull())
    return lines.join(F.broadcast(late), _KEY).select(*_KEY, "timestamp", "raw", "why")
