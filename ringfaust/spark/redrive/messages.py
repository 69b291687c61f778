"""Select the messages of a redrive from the lake."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import QueuesConfig
from ringfaust.protocol import headers as h
from ringfaust.protocol.redrive import missing_payload
from ringfaust.spark.backfill.errors import CannotBackfill, first_line
from ringfaust.spark.errors import SPARK_ERRORS
from ringfaust.spark.lake.tables import RECORDS, read
from ringfaust.spark.redrive.request import LakeRedriveRequest, LakeRole
from ringfaust.spark.vendor import is_deterministic


def select_messages(spark: SparkSession, request: LakeRedriveRequest) -> DataFrame:
    """The messages that match the condition; of several records of one id, the last (R43).

    Returns:
        The columns of the lake's `records`, with `topic` replaced by the target topic, and
        `slice` and `position` (partition and offset + 1 of the dead or evicted record),
        `home` (the partition of the source record), `redriven` (position of the dead or evicted
        record) and `redrives` (how often the message was sent again).

    Raises:
        CannotBackfill: there is no lake, or the condition does not fit it.
    """
    try:
        records = read(spark, request.lake, RECORDS.name)
    except SPARK_ERRORS as error:
        text = f"{request.lake!r} is no lake, or has no records yet: {first_line(error)}"
        raise CannotBackfill("--lake", text) from None
    # Undecodable records are no messages and belong to no queue.
    known = records.where((F.col("role") == request.role.value) & F.col("sequence").isNotNull())
    try:
        matching = known.where(request.where)
        deterministic = is_deterministic(matching)
    except SPARK_ERRORS as error:
        names = ", ".join(known.columns)
        text = f"{request.where!r} is not a valid condition: {first_line(error)} Columns: {names}"
        raise CannotBackfill("--where", text) from None
    if not deterministic:
        raise CannotBackfill(
            "--where", "the condition selects other messages each time; remove rand() and the like"
        )
    last = known.groupBy("partition", "queue", "id").agg(F.max("offset").alias("offset"))
    source = F.regexp_extract("source", r"^(.*)/(\d+)/(\d+)$", 1)
    return matching.join(last, ["partition", "queue", "id", "offset"], "left_semi").withColumns(
        {
            "slice": F.col("partition"),
            "position": F.col("offset") + 1,
            "home": F.regexp_extract("source", r"/(\d+)/\d+$", 1).try_cast("int"),
            "redriven": F.concat_ws("/", "topic", "partition", "offset"),
            "redrives": F.coalesce(
                kept_header(h.REDRIVES).cast("string").try_cast("int"), F.lit(0)
            ),
            "topic": F.lit(request.to_topic) if request.to_topic else source,
        }
    )


def kept_header(name: str) -> Column:
    """A ringfaust header that belongs to the message; the lake has these in `extra`."""
    return F.col("extra")[name.removeprefix(h.PREFIX).replace("-", "_")]


def payload_fault(messages: DataFrame, role: LakeRole, queues: QueuesConfig) -> Column:
    """Why an evicted record cannot be sent again: it has no payload. Null: it can."""
    no_fault = F.lit(None).cast("string")
    if role is not LakeRole.EVICTED:
        return no_fault
    empty = messages.where("value is null").select("queue").distinct().collect()
    catalog = queues.catalog()
    partial = [row[0] for row in empty if missing_payload(catalog, row[0])]
    fault = F.concat(
        F.lit("queue "), "queue", F.lit(" evicts without payload (evicted_payload): the message "),
        F.lit("is not in the lake, but at its source "), "source",
    )  # fmt: skip
    return F.when(F.col("value").isNull() & F.col("queue").isin(partial), fault).otherwise(no_fault)
