"""Turn messages of the lake into producer's records again."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ringfaust.protocol import headers as h
from ringfaust.protocol.redrive import QUEUE_PART
from ringfaust.protocol.routes import RouteTemplate
from ringfaust.spark.backfill.mapping import HEADERS
from ringfaust.spark.backfill.target import Target
from ringfaust.spark.kafka import queue_name
from ringfaust.spark.redrive.messages import kept_header

REDRIVEN_FROM = "x-ringfaust-redriven-from"
"""Header with the topic/partition/offset of the dead or evicted record that was sent again."""


def to_records(
    messages: DataFrame, targets: Mapping[str, Target], *, keeps_topic: bool
) -> DataFrame:
    """The producer's key, value and headers, and the ringfaust headers of the new message.

    Id, priority, group and properties stay; ttl and delay do not (R43).

    The messages are those of `select_messages`, with a column `fault`. With `keeps_topic` each goes
    to the topic that it came from.

    The columns are those of `check.Row`.
    """
    theirs = F.transform(
        F.filter("headers", lambda header: header["key"] != REDRIVEN_FROM),
        lambda header: F.struct(header["key"].alias("name"), header["value"].alias("value")),
    )
    queue_headers = [_queue_header(target) for target in targets.values()] if keeps_topic else []
    ours = F.array(
        _header(h.ID, F.col("id")),
        _header(h.PRIORITY, F.col("priority")),
        _header(h.GROUP, F.nullif("group", F.lit(""))),
        _header(h.QUEUE, F.coalesce(F.lit(None), *queue_headers)),
        _header(h.PROPERTIES, kept_header(h.PROPERTIES)),
        _header(h.REDRIVES, F.col("redrives") + 1),
        _header(h.REDRIVE_OF, F.concat_ws("/", "queue", "sequence")),
        _header(REDRIVEN_FROM, F.col("redriven")),
    )
    ours = F.filter(ours, lambda header: header["value"].isNotNull())
    old_partitions = [
        F.when(
            (F.col("topic") == target.topic) & (F.col("home") < target.partitions), F.col("home")
        )
        for target in (targets.values() if keeps_topic else ())
    ]
    return messages.select(
        "slice",
        "position",
        "topic",
        # The old partition, however it was chosen; in another topic the key decides.
        F.coalesce(*old_partitions, F.lit(-1)).alias("partition"),
        "key",
        "value",
        F.concat(F.coalesce(theirs, F.array().cast(HEADERS)), ours).alias("headers"),
        F.lit(None).cast("long").alias("timestamp_ms"),
        F.when(F.col("fault").isNotNull(), "payload").alias("what"),
        "fault",
    )


def _header(name: str, value: Column) -> Column:
    content = value.cast("string").cast("binary")
    return F.struct(F.lit(name).alias("name"), content.alias("value"))


def _queue_header(target: Target) -> Column:
    """The header that named the queue, if the route's template uses it; else null.

    It is a ringfaust header, so it is not passed on. It follows from the queue's name, because all
    other parts of that name are known.
    """
    parts = RouteTemplate(target.queue).around(QUEUE_PART)
    if parts is None:
        return F.lit(None).cast("string")
    before, after = map(queue_name, parts)
    length = F.length("queue") - F.length(before) - F.length(after)
    name = F.substr("queue", F.length(before) + 1, length)
    return F.when(F.col("topic") == target.topic, name)
