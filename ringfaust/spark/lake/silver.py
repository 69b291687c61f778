"""Events → transitions, a row for each line; other outputs → records; bad ones → quarantine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.protocol import headers as h
from ringfaust.spark.frames import kept
from ringfaust.spark.kafka import without_attributes
from ringfaust.spark.lake.store import LakeProgress, append
from ringfaust.spark.lake.tables import BRONZE, QUARANTINE, RECORDS, TRANSITIONS, read
from ringfaust.spark.lines import read_lines

EVENTS_STREAM = "events"
OUTPUTS_STREAM = "outputs"
_PREFIX = len(h.PREFIX) + 1
_OTHERS = (*BRONZE.schema.names, "role", "extra")
_KNOWN = {field.name: field.dataType for field in RECORDS.schema if field.name not in _OTHERS}
"""The columns that are headers of ours."""

_MESSAGE = ("queue", "id", "sequence", "source", "priority", "enqueued_ms")
_NEEDED = {
    "dispatched": (*_MESSAGE, "consumer", "delivery"),
    "evicted": (*_MESSAGE, "reason", "time_ms"),
    "dead": ("source", "reason", "time_ms"),
}
"""A record without these is bad. A dead record may be an undecodable one, of no queue."""


@contextmanager
def written_transitions(
    spark: SparkSession, root: str, topic: str, batch: int, bronze: DataFrame | None = None
) -> Iterator[DataFrame | None]:
    """Write a batch's transitions and quarantine, unless they are there.

    `bronze` has the batch's rows in bronze, if they are at hand. Within the `with` statement the
    transitions are at hand; None if they were there before.
    """
    progress = LakeProgress(spark, root, EVENTS_STREAM)
    if progress.batch >= batch:
        yield None
        return
    if bronze is None:
        of_batch = (F.col("topic") == topic) & (F.col("batch") == batch)
        bronze = read(spark, root, "bronze").where(of_batch)
    with kept(_lines(bronze)) as lines:
        is_good = F.col("step").isNotNull() & F.col("event").isNotNull()
        good, bad = lines.where(is_good).select(TRANSITIONS.schema.names), lines.where(~is_good)
        append(good, root, TRANSITIONS, EVENTS_STREAM, batch)
        if bad.count():
            bad = bad.withColumns(
                {"topic": F.lit(topic), "why": _why_bad(), "date": F.to_date("timestamp")}
            )
            append(bad.select(QUARANTINE.schema.names), root, QUARANTINE, EVENTS_STREAM, batch)
        progress.complete(batch)
        yield good


def _lines(bronze: DataFrame) -> DataFrame:
    """Lines in the columns of the table; `date` is the day of the decision.

    The batch's number is a column of bronze: as a literal, it would be compiled for each batch.
    """
    text = F.make_valid_utf8(F.coalesce(F.col("value").cast("string"), F.lit("")))
    lines = read_lines(bronze.withColumn("value", text), "batch")
    day = F.to_date(F.timestamp_millis("time_ms"))
    return lines.withColumn("date", F.coalesce(day, F.to_date("timestamp")))


def _why_bad() -> Column:
    """What a bad line lacks."""
    return (
        F.when(F.get_json_object("raw", "$").isNull(), "no_json")
        .when(F.col("step").isNull(), "no_step")
        .otherwise("no_event")
    )


def write_records(
    root: str, topics: dict[str, str], spark: SparkSession, batch: int, bronze: DataFrame | None
) -> None:
    """Write a batch's records, their headers as columns, and quarantine, unless they are there.

    `topics` are by role: dispatched, evicted, dead. `bronze` has the batch's rows in bronze, if
    they are at hand.
    """
    progress = LakeProgress(spark, root, OUTPUTS_STREAM)
    if progress.batch >= batch:
        return
    if bronze is None:
        of_batch = F.col("topic").isin(*topics.values()) & (F.col("batch") == batch)
        bronze = read(spark, root, "bronze").where(of_batch)
    with kept(_decoded(bronze, topics).withColumn("why", _lacks())) as records:
        good, bad = records.where("why IS NULL"), records.where("why IS NOT NULL")
        append(good.select(RECORDS.schema.names), root, RECORDS, OUTPUTS_STREAM, batch)
        if bad.count():
            bad = bad.withColumns(
                {"line": F.lit(None).cast("int"), "raw": F.lit(None).cast("string")}
            )
            append(bad.select(QUARANTINE.schema.names), root, QUARANTINE, OUTPUTS_STREAM, batch)
    progress.complete(batch)


def _decoded(bronze: DataFrame, topics: dict[str, str]) -> DataFrame:
    """Our headers as columns, the last of several with one name. Unknown ones go to `extra`."""
    ours = F.filter("headers", lambda header: header.key.startswith(h.PREFIX))
    theirs = F.filter(
        without_attributes(F.col("headers")), lambda header: ~header.key.startswith(h.PREFIX)
    )
    role = F.create_map(
        *(F.lit(word) for role, topic in topics.items() for word in (topic, str(role)))
    )[F.col("topic")]
    named = bronze.withColumns(
        {
            "role": role,
            # Of several with one name Spark keeps the last (_SETTINGS in lake/stream.py).
            "values": F.map_from_entries(
                F.transform(
                    F.coalesce(ours, F.array()),
                    lambda header: F.struct(
                        F.translate(F.substr(header.key, F.lit(_PREFIX)), "-", "_"), header.value
                    ),
                )
            ),
            "headers": theirs,
        }
    )

    values = {name: F.make_valid_utf8(F.col("values")[name].cast("string")) for name in _KNOWN}
    columns = {name: values[name].try_cast(kind) for name, kind in _KNOWN.items()}
    columns["redelivered"] = values["redelivered"] == "1"
    columns["extra"] = F.map_filter("values", lambda name, _: ~name.isin(*_KNOWN))
    return named.withColumns(columns)


def _lacks() -> Column:
    """The first required header that is missing or not a number, as `lacks_…`; else null."""
    why = F.lit(None).cast("string")
    for role, names in _NEEDED.items():
        for name in reversed(names):
            missing = (F.col("role") == role) & F.col(name).isNull()
            why = F.when(missing, f"lacks_{name}").otherwise(why)
    return why
