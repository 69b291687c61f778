"""Records of the topics dispatched, evicted and dead → one row each, their headers as columns.

A record may come again, as in `transitions`. What identifies one is the number of its delivery, or
the message that was evicted or given up. In a topic that repeats nothing delivery numbers and times
never go back, so only a record that does not go beyond them is looked up.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ringfaust.protocol import headers as h
from ringfaust.spark.lake.store import Marks, append
from ringfaust.spark.lake.tables import QUARANTINE, RECORDS, REPEATS, read

STREAM = "outputs"
_PREFIX = len(h.PREFIX) + 1
_TEXTS = ("queue", "id", "source", "group", "consumer", "reason", "cause", "text", "position")
_LONGS = ("sequence", "enqueued_ms", "delivery", "expires_at_ms", "time_ms", "age_ms")
_INTS = ("priority", "attempt", "handovers", "ring_size", "ready")
_KNOWN = (*_TEXTS, *_LONGS, *_INTS, "redelivered")

_MESSAGE = ("queue", "id", "sequence", "source", "priority", "enqueued_ms")
_NEEDED = {
    "dispatched": (*_MESSAGE, "consumer", "delivery"),
    "evicted": (*_MESSAGE, "reason", "time_ms"),
    "dead": ("source", "reason", "time_ms"),
}
"""A record without these is bad. Dead ones may be records that were unreadable: of no queue."""
_IDENTITY = {
    "dispatched": ("delivery",),
    "evicted": ("queue", "sequence", "source"),
    "dead": ("queue", "sequence", "source"),
}
_CLOCK = {"dispatched": "delivery", "evicted": "time_ms", "dead": "time_ms"}
"""What never goes back in a partition of a topic that repeats nothing."""


def write(spark: SparkSession, root: str, topics: dict[str, str], batch: int) -> None:
    """Read the batch from bronze and write its records, repeats and quarantine.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        topics: topic by role: dispatched, evicted, dead.
        batch: a number of the stream `outputs`; it is in bronze.
    """
    marks = Marks(spark, root, STREAM)
    if marks.batch >= batch:
        return
    bronze = read(spark, root, "bronze").where(
        F.col("topic").isin(*topics.values()) & (F.col("batch") == batch)
    )
    records = _decoded(bronze, topics)
    seen = _seen(records).persist()
    ends = seen.groupBy("topic", "partition", "role").agg(
        F.min("clock"), F.max("clock"), F.count_if("is_bad"), F.count_if("is_again")
    )
    spans = {(row.topic, row.partition, row.role): tuple(row)[3:] for row in ends.collect()}
    repeats = _repeats(spark, root, seen, spans, marks=marks, batch=batch).persist()
    counts = repeats.groupBy("topic", "partition").count().collect()
    good = records.where(_lacks().isNull())
    if counts:
        good = good.join(
            F.broadcast(repeats.select("topic", "partition", "offset")),
            ["topic", "partition", "offset"],
            "left_anti",
        )
        rows = [("records", row.topic, row.partition, batch, row["count"]) for row in counts]
        told = spark.createDataFrame(rows, REPEATS.schema).coalesce(1)
        append(told, root, REPEATS, STREAM, batch)
    append(good.select(RECORDS.schema.names), root, RECORDS, STREAM, batch)
    if any(bad for _, _, bad, _ in spans.values()):
        bad = records.withColumns(
            {"why": _lacks(), "line": F.lit(None).cast("int"), "raw": F.lit(None).cast("string")}
        )
        bad = bad.where(F.col("why").isNotNull()).select(QUARANTINE.schema.names)
        append(bad, root, QUARANTINE, STREAM, batch)
    for (topic, partition, _), (_, highest, _, _) in spans.items():
        if highest is not None:
            marks.raise_to(topic, partition, highest)
    marks.save(batch)
    repeats.unpersist()
    seen.unpersist()


def _decoded(bronze: DataFrame, topics: dict[str, str]) -> DataFrame:
    """Headers of ours as columns; the last counts. Those we do not know go to `extra`."""
    ours = F.filter("headers", lambda header: header.key.startswith(h.PREFIX))
    theirs = F.filter("headers", lambda header: ~header.key.startswith(h.PREFIX))
    role = F.create_map(
        *(F.lit(word) for role, topic in topics.items() for word in (topic, str(role)))
    )[F.col("topic")]
    named = bronze.withColumns(
        {
            "role": role,
            # Of two with the same name the last counts: Spark keeps it (session.py of the lake).
            "said": F.map_from_entries(
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

    def said(name: str) -> Column:
        return F.make_valid_utf8(F.col("said")[name].cast("string"))

    columns = {name: said(name) for name in _TEXTS}
    columns |= {name: said(name).try_cast("long") for name in _LONGS}
    columns |= {name: said(name).try_cast("int") for name in _INTS}
    columns["redelivered"] = said("redelivered") == "1"
    columns["extra"] = F.map_filter("said", lambda name, _: ~name.isin(*_KNOWN))
    return named.withColumns(columns)


def _lacks() -> Column:
    """The first header that the record needs and has not, or that is no number; else null."""
    why = F.lit(None).cast("string")
    for role, names in _NEEDED.items():
        for name in reversed(names):
            missing = (F.col("role") == role) & F.col(name).isNull()
            why = F.when(missing, f"lacks_{name}").otherwise(why)
    return why


def _by_role(names: dict[str, Column]) -> Column:
    return reduce(
        lambda other, role: F.when(F.col("role") == role, names[role]).otherwise(other),
        names,
        F.lit(None),
    )


def _seen(records: DataFrame) -> DataFrame:
    """Of each record only what finds repeats: its identity, its clock, and if it is one here."""
    what = _by_role({role: F.to_json(F.struct(*names)) for role, names in _IDENTITY.items()})
    narrow = records.select(
        "topic",
        "partition",
        "offset",
        "role",
        what.alias("what"),
        _by_role({role: F.col(name) for role, name in _CLOCK.items()}).alias("clock"),
        _lacks().isNotNull().alias("is_bad"),
    )
    same = Window.partitionBy("topic", "partition", "what").orderBy("is_bad", "offset")
    is_again = (F.row_number().over(same) > 1) & ~F.col("is_bad")
    return narrow.withColumn("is_again", is_again)


def _repeats(
    spark: SparkSession,
    root: str,
    seen: DataFrame,
    spans: dict[tuple[str, int, str], tuple[int | None, ...]],
    *,
    marks: Marks,
    batch: int,
) -> DataFrame:
    """Topic, partition and offset of the records that were told before."""
    told = F.lit(False)
    for (topic, partition, role), (lowest, _, _, _) in spans.items():
        mark = marks.by_partition.get((topic, partition))
        if mark is not None and lowest is not None and lowest <= mark:
            told |= (
                (F.col("role") == role)
                & (F.col("topic") == topic)
                & (F.col("partition") == partition)
                & F.col(_CLOCK[role]).between(lowest, mark)
            )
    what = _by_role({role: F.to_json(F.struct(*names)) for role, names in _IDENTITY.items()})
    earlier = read(spark, root, "records").where((F.col("batch") < batch) & told)
    known = earlier.select("topic", "partition", what.alias("what"), F.lit(True).alias("is_known"))
    return (
        seen.join(known, ["topic", "partition", "what"], "left")
        .where(~F.col("is_bad") & (F.col("is_again") | F.col("is_known")))
        .select("topic", "partition", "offset")
    )
