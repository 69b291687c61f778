"""Which messages of the lake to send again, and the producer's records that they become."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core.catalog import Configuration
from ringfaust.protocol import headers as h
from ringfaust.protocol.redrive import QUEUE_PART
from ringfaust.protocol.routes import RouteTemplate
from ringfaust.redrive.plan import RedriveContext
from ringfaust.spark.backfill.errors import CannotBackfill
from ringfaust.spark.backfill.job import job_name
from ringfaust.spark.backfill.mapping import HEADERS
from ringfaust.spark.backfill.target import Target
from ringfaust.spark.errors import SPARK_ERRORS, first_line
from ringfaust.spark.kafka import queue_name
from ringfaust.spark.lake.tables import RECORDS, read
from ringfaust.spark.options import LakeRole, RedriveOptions
from ringfaust.spark.vendor import is_deterministic

REDRIVEN_FROM = "x-ringfaust-redriven-from"
"""Header with the topic/partition/offset of the dead or evicted record that was sent again."""


@dataclass(frozen=True, slots=True)
class LakeRedriveRequest:
    """Which messages to send again, and where to."""

    worker: WorkerConfig
    queues: QueuesConfig
    options: RedriveOptions
    earlier: Sequence[Configuration] = ()
    """What else has been in effect."""

    @property
    def job(self) -> str:
        """The name of the job, by which earlier versions kept what it sent."""
        return job_name(self.options.name, self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """Equal for the same condition and target."""
        parts = json.dumps([self.options.role, self.options.where, self.options.to_topic])
        return hashlib.sha256(parts.encode()).hexdigest()[:12]

    @property
    def about(self) -> str:
        """A description."""
        where, to = self.options.where, self.options.to_topic or "their own topics"
        return f"{self.options.role} messages where {where}, to {to}"


def to_records(
    messages: DataFrame, targets: Mapping[str, Target], *, keeps_topic: bool
) -> DataFrame:
    """The producer's key, value and headers, and the ringfaust headers of the new message.

    Id, priority, group and properties stay; ttl and delay do not (R43).

    The messages are those of `select_messages`, with a column `fault`. With `keeps_topic` each goes
    to the topic that it came from.

    The columns are those of `check.Row`, and where the dead or evicted record is.
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
        "origin_partition",
        "offset",
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


def select_messages(spark: SparkSession, request: LakeRedriveRequest) -> DataFrame:
    """The messages that match the condition; of several records of one id, the last (R43).

    Returns:
        The columns of the lake's `records`, with `topic` replaced by the target topic, and
        `origin_partition` (of the dead or evicted record, whose offset is `offset`),
        `home` (the partition of the source record), `redriven` (position of the dead or evicted
        record) and `redrives` (how often the message was sent again).

    Raises:
        CannotBackfill: there is no lake, or the condition does not fit it.
    """
    lake, where = request.options.lake, request.options.where
    try:
        records = read(spark, lake, RECORDS.name)
    except SPARK_ERRORS as error:
        text = f"{lake!r} is no lake, or has no records yet: {first_line(error)}"
        raise CannotBackfill("--lake", text) from None
    # Undecodable records are no messages and belong to no queue.
    known = records.where(
        (F.col("role") == request.options.role.value) & F.col("sequence").isNotNull()
    )
    try:
        matching = known.where(where)
        deterministic = is_deterministic(matching)
    except SPARK_ERRORS as error:
        names = ", ".join(known.columns)
        text = f"{where!r} is not a valid condition: {first_line(error)} Columns: {names}"
        raise CannotBackfill("--where", text) from None
    if not deterministic:
        raise CannotBackfill(
            "--where", "the condition selects other messages each time; remove rand() and the like"
        )
    last = known.groupBy("partition", "queue", "id").agg(F.max("offset").alias("offset"))
    source = F.regexp_extract("source", r"^(.*)/(\d+)/(\d+)$", 1)
    to_topic = request.options.to_topic
    return matching.join(last, ["partition", "queue", "id", "offset"], "left_semi").withColumns(
        {
            "origin_partition": F.col("partition"),
            "home": F.regexp_extract("source", r"/(\d+)/\d+$", 1).try_cast("int"),
            "redriven": F.concat_ws("/", "topic", "partition", "offset"),
            "redrives": F.coalesce(
                kept_header(h.REDRIVES).cast("string").try_cast("int"), F.lit(0)
            ),
            "topic": F.lit(to_topic) if to_topic else source,
        }
    )


def kept_header(name: str) -> Column:
    """A ringfaust header that belongs to the message; the lake has these in `extra`."""
    return F.col("extra")[name.removeprefix(h.PREFIX).replace("-", "_")]


def payload_fault(messages: DataFrame, role: LakeRole, context: RedriveContext) -> Column:
    """Why an evicted record cannot be sent again: it has no payload. Null: it can."""
    no_fault = F.lit(None).cast("string")
    if role is not LakeRole.EVICTED:
        return no_fault
    empty = messages.where("value is null").select("queue").distinct().collect()
    partial = [row[0] for row in empty if context.missing_payload(row[0])]
    fault = F.concat(
        F.lit("queue "), "queue", F.lit(" evicts without payload (evicted_payload): the message "),
        F.lit("is not in the lake, but at its source "), "source",
    )  # fmt: skip
    return F.when(F.col("value").isNull() & F.col("queue").isin(partial), fault).otherwise(no_fault)
