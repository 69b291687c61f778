"""Records of the topics dispatched, evicted and dead → one row each, their headers as columns.

A record may be repeated, as in `transitions`. Its delivery number identifies it, or the message
that was evicted or dead-lettered. In a topic without repeats delivery numbers and times never go
back, so only records that are not beyond the highest earlier ones are looked up.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ringfaust.protocol import headers as h
from ringfaust.spark.lake.store import Watermarks, append
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
"""A record without these is bad. A dead record may be an undecodable one, of no queue."""
_IDENTITY = {
    "dispatched": ("delivery",),
    "evicted": ("queue", "sequence", "source"),
    "dead": ("queue", "sequence", "source"),
}
_CLOCK = {"dispatched": "delivery", "evicted": "time_ms", "dead": "time_ms"}
"""What never goes back in a partition of a topic without repeats."""


def write(spark: SparkSession, root: str, topics: dict[str, str], batch: int) -> None:
    """Read a batch from bronze and write its records, repeats and quarantine.

    Args:
        spark: the session.
        root: the lake's folder or URI.
        topics: topic by role: dispatched, evicted, dead.
        batch: a batch of the stream `outputs` that is in bronze.
    """
    watermarks = Watermarks(spark, root, STREAM)
    if watermarks.batch >= batch:
        return
    bronze = read(spark, root, "bronze").where(
        F.col("topic").isin(*topics.values()) & (F.col("batch") == batch)
    )
    records = _decoded(bronze, topics)
    keys = _keys(records).persist()
    found = keys.groupBy("topic", "partition", "role").agg(
        F.min("clock"), F.max("clock"), F.count_if("is_bad"), F.count_if("is_repeat")
    )
    spans = {(row.topic, row.partition, row.role): tuple(row)[3:] for row in found.collect()}
    repeats = _repeats(spark, root, keys, spans, watermarks=watermarks, batch=batch).persist()
    counts = repeats.groupBy("topic", "partition").count().collect()
    good = records.where(_lacks().isNull())
    if counts:
        good = good.join(
            F.broadcast(repeats.select("topic", "partition", "offset")),
            ["topic", "partition", "offset"],
            "left_anti",
        )
        rows = [("records", row.topic, row.partition, batch, row["count"]) for row in counts]
        repeated = spark.createDataFrame(rows, REPEATS.schema).coalesce(1)
        append(repeated, root, REPEATS, STREAM, batch)
    append(good.select(RECORDS.schema.names), root, RECORDS, STREAM, batch)
    if any(bad for _, _, bad, _ in spans.values()):
        bad = records.withColumns(
            {"why": _lacks(), "line": F.lit(None).cast("int"), "raw": F.lit(None).cast("string")}
        )
        bad = bad.where(F.col("why").isNotNull()).select(QUARANTINE.schema.names)
        append(bad, root, QUARANTINE, STREAM, batch)
    for (topic, partition, _), (_, highest, _, _) in spans.items():
        if highest is not None:
            watermarks.raise_to(topic, partition, highest)
    watermarks.save(batch)
    repeats.unpersist()
    keys.unpersist()


def _decoded(bronze: DataFrame, topics: dict[str, str]) -> DataFrame:
    """Our headers as columns, the last of several with one name. Unknown ones go to `extra`."""
    ours = F.filter("headers", lambda header: header.key.startswith(h.PREFIX))
    theirs = F.filter("headers", lambda header: ~header.key.startswith(h.PREFIX))
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

    def value(name: str) -> Column:
        return F.make_valid_utf8(F.col("values")[name].cast("string"))

    columns = {name: value(name) for name in _TEXTS}
    columns |= {name: value(name).try_cast("long") for name in _LONGS}
    columns |= {name: value(name).try_cast("int") for name in _INTS}
    columns["redelivered"] = value("redelivered") == "1"
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


def _by_role(names: dict[str, Column]) -> Column:
    return reduce(
        lambda other, role: F.when(F.col("role") == role, names[role]).otherwise(other),
        names,
        F.lit(None),
    )


def _keys(records: DataFrame) -> DataFrame:
    """What finds repeats: each record's identity, its clock, whether it repeats in the batch."""
    identity = _by_role({role: F.to_json(F.struct(*names)) for role, names in _IDENTITY.items()})
    narrow = records.select(
        "topic",
        "partition",
        "offset",
        "role",
        identity.alias("identity"),
        _by_role({role: F.col(name) for role, name in _CLOCK.items()}).alias("clock"),
        _lacks().isNotNull().alias("is_bad"),
    )
    same = Window.partitionBy("topic", "partition", "identity").orderBy("is_bad", "offset")
    is_repeat = (F.row_number().over(same) > 1) & ~F.col("is_bad")
    return narrow.withColumn("is_repeat", is_repeat)


def _repeats(
    spark: SparkSession,
    root: str,
    keys: DataFrame,
    spans: dict[tuple[str, int, str], tuple[int | None, ...]],
    *,
    watermarks: Watermarks,
    batch: int,
) -> DataFrame:
    """Topic, partition and offset of the repeated records."""
    suspect = F.lit(False)
    for (topic, partition, role), (lowest, _, _, _) in spans.items():
        mark = watermarks.by_partition.get((topic, partition))
        if mark is not None and lowest is not None and lowest <= mark:
            suspect |= (
                (F.col("role") == role)
                & (F.col("topic") == topic)
                & (F.col("partition") == partition)
                & F.col(_CLOCK[role]).between(lowest, mark)
            )
    identity = _by_role({role: F.to_json(F.struct(*names)) for role, names in _IDENTITY.items()})
    earlier = read(spark, root, "records").where((F.col("batch") < batch) & suspect)
    known = earlier.select(
        "topic", "partition", identity.alias("identity"), F.lit(True).alias("is_known")
    )
    return (
        keys.join(known, ["topic", "partition", "identity"], "left")
        .where(~F.col("is_bad") & (F.col("is_repeat") | F.col("is_known")))
        .select("topic", "partition", "offset")
    )
