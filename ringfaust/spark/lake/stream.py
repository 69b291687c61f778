"""The two streams of the lake: events → transitions → gold, and the other outputs → records.

Each is one Structured Streaming query; a micro-batch goes to bronze first, and all else is read
from there. Two, because a record of events holds hundreds of lines and one of the others a single
message: what bounds a batch of the one is nothing for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.kafka import stream_topics
from ringfaust.spark.lake import gold, records, transitions
from ringfaust.spark.lake.store import LakeError, Marks, append, compact, create_tables, is_folder
from ringfaust.spark.lake.tables import BRONZE, MOSTLY_DISTINCT

_SETTINGS = {
    # Of two headers with one name the last counts (protocol.md, What comes out).
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # A batch has rows of a day or two: a writer for each costs less than sorting by day.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # The tables' own columns count; one that a later version adds is taken over in a merge too.
    "spark.databricks.delta.schema.autoMerge.enabled": "true",
    # What is merged gives the same rows each time; keeping a copy of it costs a job a merge.
    "spark.databricks.delta.merge.materializeSource": "none",
    # Nearly all groups are a message's few lines: sorting costs less than a table of objects.
    "spark.sql.execution.useObjectHashAggregateExec": "false",
    # What is kept for the length of a batch is not worth squeezing.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Of records of events, up to 1 MB each, handed to Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    **{f"parquet.enable.dictionary#{column}": "false" for column in MOSTLY_DISTINCT},
}
_EVERY = "30 seconds"
"""Of the continuous mode: each batch costs a commit of each table."""
_FETCH_BYTES = 16_000_000
"""Of a partition at once. Kafka's 1 MB is eleven records of events: a task would mostly wait."""
_COMPACT_EACH = 50
"""Batches: each adds a few files to a day's folder."""
_OF_EVENTS = (
    "bronze", "transitions", "messages", "evictions", "deliveries", "queue_minutes", "queues",
)  # fmt: skip
_OUTPUTS = (Role.DISPATCHED, Role.EVICTED, Role.DEAD)


@dataclass(frozen=True, slots=True)
class Stream:
    """One query of the lake."""

    name: str
    topics: tuple[str, ...]
    most_records: int
    """In one batch: what bounds its work."""
    refine: Callable[[SparkSession, int], None]
    """What makes of a batch in bronze what the other tables have of it."""
    tables: tuple[str, ...]
    """What it writes often, and so has to put together."""


def streams(root: str, worker: WorkerConfig, *, with_gold: bool = True) -> tuple[Stream, Stream]:
    """The streams of an application.

    Args:
        root: the lake's folder or URI.
        worker: names the topics.
        with_gold: false leaves the gold tables for a later run, which makes them up.
    """
    events = worker.topic(Role.EVENTS)
    outputs = {str(role): worker.topic(role) for role in _OUTPUTS}

    def refine_events(spark: SparkSession, batch: int) -> None:
        transitions.write(spark, root, events, batch)
        if with_gold:
            gold.catch_up(spark, root, batch)

    def refine_outputs(spark: SparkSession, batch: int) -> None:
        records.write(spark, root, outputs, batch)

    return (
        Stream(transitions.STREAM, (events,), 2_500, refine_events, _OF_EVENTS),
        Stream(records.STREAM, tuple(outputs.values()), 200_000, refine_outputs, ("records",)),
    )


def start(
    spark: SparkSession, root: str, worker: WorkerConfig, stream: Stream, *, once: bool
) -> StreamingQuery:
    """Start a stream where it stopped, or at the beginning of its topics.

    Args:
        spark: from `lake_session`.
        root: the lake's folder or URI.
        worker: brokers.
        stream: which.
        once: read what is there and end; else go on.
    """
    done = Marks(spark, root, stream.name).batch
    if done >= 0:
        stream.refine(spark, done)  # gold that was left away, or removed, without waiting for news
    options = {
        "maxOffsetsPerTrigger": str(stream.most_records),
        "failOnDataLoss": "true",
        "kafka.max.partition.fetch.bytes": str(_FETCH_BYTES),
    }

    def land(rows: DataFrame, batch: int) -> None:
        append(_bronze(rows, batch), root, BRONZE, stream.name, batch)
        stream.refine(rows.sparkSession, batch)
        if batch % _COMPACT_EACH == _COMPACT_EACH - 1:
            compact(rows.sparkSession, root, stream.tables)

    writer = (
        stream_topics(spark, worker, stream.topics, options)
        .writeStream.queryName(f"lake of {worker.application}: {stream.name}")
        .foreachBatch(land)
        .option("checkpointLocation", checkpoint(root, stream.name))
    )
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=_EVERY)
    return trigger.start()


def checkpoint(root: str, stream: str) -> str:
    """Where a stream keeps how far it is: with the tables, for one is nothing without the other."""
    return f"{root.rstrip('/')}/state/checkpoints/{stream}"


def lake_session(spark: SparkSession, root: str, worker: WorkerConfig) -> SparkSession:
    """A session with the lake's settings, and its tables made.

    Raises:
        LakeError: the lake is another application's, or its checkpoint is gone.
    """
    session = spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    create_tables(session, root, worker.application)
    for name in (transitions.STREAM, records.STREAM):
        if Marks(session, root, name).batch >= 0 and not is_folder(session, checkpoint(root, name)):
            raise LakeError(
                root,
                f"has tables, but its checkpoint of {name} is gone, so it does not know how far "
                "it is: bring back state/checkpoints, or make a new lake in an empty folder",
            )
    return session


def _bronze(rows: DataFrame, batch: int) -> DataFrame:
    columns: Mapping[str, str] = {"timestampType": "timestamp_type"}
    return (
        rows.withColumnsRenamed(dict(columns))
        .withColumns({"batch": F.lit(batch).cast("long"), "date": F.to_date("timestamp")})
        .select(BRONZE.schema.names)
    )
