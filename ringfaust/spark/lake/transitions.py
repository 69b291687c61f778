"""Records of the events topic → transitions: each line once, bad and late lines in quarantine.

The Arrow writer (`arrow_writer`) reads and writes the lines; batches that it cannot handle go
through the Spark writer, in this module.

A line may appear twice, because Spark's Kafka sink repeats part of a micro-batch after a crash. In
a topic without repeats steps never go back, so only a line whose step is not beyond the partition's
highest earlier step can be a repeat. Such lines are looked up by partition, step and text. All
others are new, and the look-up stays small however large the table is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from ringfaust.spark.lake import arrow_writer
from ringfaust.spark.lake.profile import RecordProfile, as_text, profile_records, step_of
from ringfaust.spark.lake.store import Watermarks, append
from ringfaust.spark.lake.tables import QUARANTINE, REPEATS, TRANSITIONS, read
from ringfaust.spark.lines import read_lines

STREAM = "events"
_LINE_KEY = ["partition", "offset", "line"]
_SUSPECT_RECORDS = (
    "partition int, offset long, ceiling long, ranges array<struct<low:long,high:long>>"
)
_MAX_RANGES = 50
"""In one look-up. If there are more, everything between their bounds is looked up."""

_Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Suspects:
    """Where a batch may repeat something."""

    records: list[tuple[int, int, int, _Ranges]]
    """Partition, offset, ceiling and ranges of steps to check. The ceiling is the partition's
    highest step before the record."""
    known: dict[int, _Ranges]
    """By partition: ranges of steps that earlier batches may contain."""


@dataclass(frozen=True, slots=True)
class _Dropped:
    """Lines that are not written to transitions."""

    lines: DataFrame
    """Their keys; `why` is null for a repeat, else `late`."""
    counts: list[Row]
    """How many, by partition and why."""


def write(spark: SparkSession, root: str, topic: str, batch: int) -> None:
    """Read a batch from bronze and write its transitions, repeats and quarantine.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        topic: the events topic.
        batch: a batch of the stream `events` that is in bronze.
    """
    watermarks = Watermarks(spark, root, STREAM)
    if watermarks.batch >= batch:
        return
    bronze = (
        read(spark, root, "bronze")
        .where((F.col("topic") == topic) & (F.col("batch") == batch))
        .select("topic", "partition", "offset", "timestamp", "value")
    )
    staged = arrow_writer.stage(spark, root, bronze, batch)
    if staged is None:
        profiles, records = profile_records(bronze)
    else:
        profiles, records = staged.records, as_text(bronze)
    before = {partition: step for (_, partition), step in watermarks.by_partition.items()}
    dropped = _find_dropped(spark, root, records, _suspects(profiles, before), batch)
    if staged is not None and dropped is None:
        staged.commit(STREAM, batch)
    else:
        if staged is not None:
            staged.discard()
        line_count = sum(profile.lines for profile in profiles)
        _write_with_spark(root, topic, records, batch, line_count=line_count, dropped=dropped)
    if dropped is not None:
        dropped.lines.unpersist()
    for profile in profiles:
        if profile.high is not None:
            watermarks.raise_to(topic, profile.partition, profile.high)
    watermarks.save(batch)


# --- the Spark writer -----------------------------------------------------------------------------


def _write_with_spark(
    root: str,
    topic: str,
    records: DataFrame,
    batch: int,
    *,
    line_count: int,
    dropped: _Dropped | None,
) -> None:
    """Write a batch with any lines; `line_count` is how many it has."""
    lines = read_lines(records)
    if dropped is not None:
        line_count -= sum(row["count"] for row in dropped.counts)
        lines = lines.join(F.broadcast(dropped.lines.drop("why")), _LINE_KEY, "left_anti")
    is_good = F.col("step").isNotNull() & F.col("event").isNotNull()
    append(_as_transitions(lines.where(is_good), batch), root, TRANSITIONS, STREAM, batch)
    bad = lines.where(~is_good).select(*_LINE_KEY, "timestamp", "raw", _why_bad().alias("why"))
    some_late = False
    if dropped is not None:
        some_late = any(row.why for row in dropped.counts)
        bad = bad.unionByName(_late_lines(records, dropped.lines))
        _write_repeats(root, topic, dropped, batch)
    if some_late or _count(records.sparkSession, root, batch) < line_count:
        quarantine = bad.withColumns(
            {
                "topic": F.lit(topic),
                "batch": F.lit(batch).cast("long"),
                "date": F.to_date("timestamp"),
            }
        )
        append(quarantine.select(QUARANTINE.schema.names), root, QUARANTINE, STREAM, batch)


def _as_transitions(lines: DataFrame, batch: int) -> DataFrame:
    """Lines in the columns of the table; `date` is the day of the decision."""
    day = F.to_date(F.timestamp_millis("time_ms"))
    return lines.withColumns(
        {"batch": F.lit(batch).cast("long"), "date": F.coalesce(day, F.to_date("timestamp"))}
    ).select(TRANSITIONS.schema.names)


def _count(spark: SparkSession, root: str, batch: int) -> int:
    return read(spark, root, "transitions").where(F.col("batch") == batch).count()


def _why_bad() -> Column:
    """What a bad line lacks."""
    return (
        F.when(F.get_json_object("raw", "$").isNull(), "no_json")
        .when(F.col("step").isNull(), "no_step")
        .otherwise("no_event")
    )


def _late_lines(records: DataFrame, dropped: DataFrame) -> DataFrame:
    """The late lines with their text."""
    lines = records.select(
        "partition",
        "offset",
        "timestamp",
        F.posexplode(F.split("value", "\n")).alias("line", "raw"),
    )
    late = dropped.where(F.col("why").isNotNull())
    return lines.join(F.broadcast(late), _LINE_KEY).select(*_LINE_KEY, "timestamp", "raw", "why")


def _write_repeats(root: str, topic: str, dropped: _Dropped, batch: int) -> None:
    rows = [
        ("transitions", topic, row.partition, batch, row["count"])
        for row in dropped.counts
        if not row.why
    ]
    if rows:
        repeats = dropped.lines.sparkSession.createDataFrame(rows, REPEATS.schema).coalesce(1)
        append(repeats, root, REPEATS, STREAM, batch)


# --- repeats --------------------------------------------------------------------------------------


def _suspects(profiles: Sequence[RecordProfile], before: dict[int, int]) -> _Suspects:
    """Which steps of which records are not beyond everything before them.

    Args:
        profiles: of the batch, in order.
        before: by partition, the highest step of earlier batches.
    """
    highest = dict(before)
    suspect: dict[int, _Ranges] = {}
    ceilings: dict[tuple[int, int], int] = {}
    for profile in profiles:
        if profile.low is None or profile.high is None:
            continue
        ceiling = highest.get(profile.partition, -1)
        ceilings[profile.partition, profile.offset] = ceiling
        if profile.low <= ceiling:
            steps = (profile.low, min(profile.high, ceiling))
            suspect.setdefault(profile.partition, []).append(steps)
        if profile.doubled:
            suspect.setdefault(profile.partition, []).append((profile.low, profile.high))
        highest[profile.partition] = max(ceiling, profile.high)
    merged = {partition: _merged(ranges) for partition, ranges in suspect.items()}
    records = []
    for profile in profiles:
        if profile.low is None or profile.high is None:
            continue
        ranges = [
            (low, high)
            for low, high in merged.get(profile.partition, ())
            if low <= profile.high and profile.low <= high
        ]
        if ranges:
            ceiling = ceilings[profile.partition, profile.offset]
            records.append((profile.partition, profile.offset, ceiling, ranges))
    known = {
        partition: [(low, min(high, before[partition])) for low, high in ranges
                    if low <= before[partition]]
        for partition, ranges in merged.items()
        if partition in before
    }  # fmt: skip
    return _Suspects(records, {partition: ranges for partition, ranges in known.items() if ranges})


def _merged(ranges: _Ranges) -> _Ranges:
    """The same steps in ranges that do not touch each other."""
    merged: _Ranges = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def _find_dropped(
    spark: SparkSession, root: str, records: DataFrame, suspects: _Suspects, batch: int
) -> _Dropped | None:
    """The lines that are not written to transitions, or None if there are none."""
    if not suspects.records:
        return None
    lines = _repeated_or_late(spark, root, records, suspects, batch).persist()
    counts = lines.groupBy("partition", "why").count().collect()
    if counts:
        return _Dropped(lines, counts)
    lines.unpersist()
    return None


def _repeated_or_late(
    spark: SparkSession, root: str, records: DataFrame, suspects: _Suspects, batch: int
) -> DataFrame:
    """The keys of repeated and late lines; `why` is null for a repeat, else `late`."""
    suspect = spark.createDataFrame(suspects.records, _SUSPECT_RECORDS)
    lines = (
        records.join(F.broadcast(suspect), ["partition", "offset"])
        .select(
            "partition", "offset", "ceiling", "ranges",
            F.posexplode(F.split("value", "\n")).alias("line", "raw"),
        )
        .withColumn("step", step_of(F.col("raw")))
        .where(F.exists("ranges", lambda steps: F.col("step").between(steps.low, steps.high)))
        .where(F.get_json_object("raw", "$").isNotNull())  # otherwise it is bad, not a repeat
    )  # fmt: skip
    same = Window.partitionBy("partition", "step", "raw").orderBy("offset", "line")
    checked = lines.withColumn("is_repeat", F.row_number().over(same) > 1)
    if suspects.known:
        earlier = (
            read(spark, root, "transitions")
            .where((F.col("batch") < batch) & _in_any_range(suspects.known))
            .select("partition", "step", "raw", F.lit(True).alias("is_known"))
        )
        checked = checked.join(earlier, ["partition", "step", "raw"], "left").withColumn(
            "is_repeat", F.col("is_repeat") | F.coalesce("is_known", F.lit(False))
        )
    # A refused command has the previous step. A record that was undecodable before repartitioning
    # has step 0.
    is_late = (F.col("step") < F.col("ceiling")) & (F.col("step") > 0)
    why = F.when(~F.col("is_repeat"), F.lit("late"))
    return checked.where(F.col("is_repeat") | is_late).select(*_LINE_KEY, why.alias("why"))


def _in_any_range(known: dict[int, _Ranges]) -> Column:
    found = F.lit(False)
    for partition, ranges in known.items():
        if len(ranges) > _MAX_RANGES:
            ranges = [(ranges[0][0], ranges[-1][1])]  # noqa: PLW2901
        for low, high in ranges:
            found |= (F.col("partition") == partition) & F.col("step").between(low, high)
    return found
