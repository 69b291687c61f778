"""The streams of the lake: events → transitions → gold, the other outputs → records, and inputs.

Each is a Structured Streaming query. A micro-batch goes to bronze first, and everything else is
made from the same rows. They are separate because an events record holds hundreds of lines and any
other record a single message: a bound that suits one does not suit the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.files import HadoopFolder, committed_offsets, last_planned
from ringfaust.spark.frames import kept
from ringfaust.spark.kafka import stream_topics
from ringfaust.spark.lake import gold, inputs, silver
from ringfaust.spark.lake.inputs import checkpoint
from ringfaust.spark.lake.store import LakeError, LakeProgress, append, compact, create_tables
from ringfaust.spark.lake.tables import BRONZE, MOSTLY_DISTINCT, TABLES, TIMES, read
from ringfaust.spark.session import set_unless_given
from ringfaust.spark.topic_ids import ReadTopicIds

_SETTINGS = {
    # Of two headers with the same name the last one counts (protocol.md, What comes out).
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # A batch has rows of a day or two: a writer for each costs less than sorting by day.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # A closing replaces the open rows and appends ended ones in one commit.
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
    # Nearly all groups are the few lines of a message: sorting costs less than a table of objects.
    "spark.sql.execution.useObjectHashAggregateExec": "false",
    # Cached data lives as long as a batch and is not worth compressing.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    **TIMES,
    **{f"parquet.enable.dictionary#{column}": "false" for column in MOSTLY_DISTINCT},
}
_TRIGGER = "1 second"
_LONGEST_WAIT = "30s"
"""In continuous mode a batch begins when it is full, or after this: each costs commits."""
_CORES = 2
"""For so many cores a batch has `max_records`; for more cores, more in proportion."""
_FETCH_BYTES = 16_000_000
"""Per partition. Kafka's default of 1 MB holds eleven events records: a task would mostly wait."""
_BATCHES_PER_COMPACTION = 50
"""Each batch adds a few files to a day's folder."""
_DATE = "greatest(DATE '0001-01-01', least(DATE '9999-12-31', to_date(timestamp)))"
"""Producers choose the times: in microseconds they are of the year 55840, and Python cannot open a
table that is partitioned by such a day."""
OUTPUTS = (Role.DISPATCHED, Role.EVICTED, Role.DEAD)


@dataclass(frozen=True, slots=True)
class LakeStream:
    """One query of the lake."""

    name: str
    topics: tuple[str, ...]
    max_records: int
    """Maximum number of records in a batch on two cores."""
    refine: Callable[[SparkSession, int, DataFrame | None], None]
    """Writes the other tables from a batch that is in bronze. Its rows, if they are at hand."""
    tables: tuple[str, ...]
    """Tables that it writes with each batch and therefore compacts."""


def streams(
    root: str, worker: WorkerConfig, read_by_workers: Collection[str] = ()
) -> list[LakeStream]:
    """The streams of an application: events, outputs and, if there are topics for it, inputs."""
    events = worker.topic(Role.EVENTS)
    outputs = {str(role): worker.topic(role) for role in OUTPUTS}

    def refine_events(spark: SparkSession, batch: int, bronze: DataFrame | None) -> None:
        with silver.written_transitions(spark, root, events, batch, bronze) as lines:
            gold.catch_up(spark, root, batch, lines)

    refine_outputs = partial(silver.write_records, root, outputs)
    appended = ("bronze", "transitions", "queue_minutes")
    found = [
        LakeStream(silver.EVENTS_STREAM, (events,), 2_500, refine_events, appended),
        LakeStream(
            silver.OUTPUTS_STREAM, tuple(outputs.values()), 200_000, refine_outputs, ("records",)
        ),
    ]
    if read_by_workers:
        complete = partial(inputs.complete, root, inputs.STREAM)
        found.append(LakeStream(inputs.STREAM, tuple(read_by_workers), 200_000, complete, ()))
    return found


def start(
    spark: SparkSession,
    root: str,
    worker: WorkerConfig,
    stream: LakeStream,
    *,
    once: bool,
    pause: Lock | None = None,
) -> StreamingQuery:
    """Start a stream where it stopped, or at the beginning of its topics.

    The inputs may have other topics than before.

    No batch begins while `pause` is held.
    """
    starting: dict[str, str] = {}
    if stream.name == inputs.STREAM:
        name, starting = inputs.continued(spark, root, worker, stream.topics)
        stream = replace(stream, name=name, refine=partial(inputs.complete, root, name))
    done = LakeProgress(spark, root, stream.name).batch
    if done >= 0:
        # Gold that was skipped or removed, without waiting for records.
        stream.refine(spark, done, None)
    planned = last_planned(spark, checkpoint(root, stream.name))
    most = str(stream.max_records * max(1, spark.sparkContext.defaultParallelism // _CORES))
    options = {
        "maxOffsetsPerTrigger": most,
        "failOnDataLoss": "true",
        "kafka.max.partition.fetch.bytes": str(_FETCH_BYTES),
        **starting,
    }
    if not once:  # full batches follow one another, and others wait for more records
        options |= {"minOffsetsPerTrigger": most, "maxTriggerDelay": _LONGEST_WAIT}

    def write_batch(rows: DataFrame, batch: int) -> None:
        bronze = _bronze(rows, batch)
        # Bronze may have a batch that is repeated: then it need not be in Kafka any more.
        is_new = batch > planned
        with pause or nullcontext(), kept(bronze) if is_new and stream.tables else nullcontext():
            append(bronze, root, BRONZE, stream.name, batch)
            stream.refine(rows.sparkSession, batch, bronze if is_new else None)
            if batch % _BATCHES_PER_COMPACTION == _BATCHES_PER_COMPACTION - 1:
                _compact(rows.sparkSession, root, stream, batch)

    writer = (
        stream_topics(spark, worker, stream.topics, options)
        .writeStream.queryName(f"lake of {worker.application}: {stream.name}")
        .foreachBatch(write_batch)
        .option("checkpointLocation", checkpoint(root, stream.name))
    )
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=_TRIGGER)
    return trigger.start()


def _compact(spark: SparkSession, root: str, stream: LakeStream, batch: int) -> None:
    """Compact what the stream appended on a batch's last day.

    Earlier days are left to `ringfaust spark maintain`, which may be at work.
    """
    written = read(spark, root, "bronze").where(
        F.col("topic").isin(*stream.topics) & (F.col("batch") == batch)
    )
    last = written.agg(F.max("date")).collect()[0][0]
    for table in map(TABLES.__getitem__, stream.tables):
        compact(spark, root, table, f"{table.day} >= DATE '{last}'" if last else None)


def _names(spark: SparkSession, root: str) -> list[str]:
    return [silver.EVENTS_STREAM, silver.OUTPUTS_STREAM, *inputs.names(spark, root)]


def read_to(spark: SparkSession, root: str) -> dict[str, dict[str, int]]:
    """By topic and partition, the offset up to which bronze is complete."""
    found: dict[str, dict[str, int]] = {}
    for name in _names(spark, root):
        found |= committed_offsets(spark, checkpoint(root, name))
    return found


def read_topic_ids(spark: SparkSession, root: str, worker: WorkerConfig) -> ReadTopicIds:
    """The ids of the topics that a lake has read."""
    return ReadTopicIds(
        spark,
        f"{root.rstrip('/')}/state",
        worker,
        f"the lake at {root}",
        "Begin a new lake in an empty folder: this one keeps what it has of the old topic; or take "
        "the topic's route out, and read the records under another name",
    )


def lake_session(spark: SparkSession, root: str, worker: WorkerConfig) -> SparkSession:
    """Create the lake's tables, and return a session with the lake's settings.

    Raises:
        LakeError: the lake belongs to another application, or its checkpoint is missing.
    """
    session = spark.newSession()
    set_unless_given(session, _SETTINGS)
    create_tables(session, root, worker.application)
    for name in _names(session, root):
        has_rows = LakeProgress(session, root, name).batch >= 0
        if has_rows and not HadoopFolder(session, checkpoint(root, name)).exists():
            raise LakeError(
                root,
                f"has tables, but the checkpoint of its stream {name} is missing, so it is unknown "
                "how far they are: restore state/checkpoints, or create a new lake in an empty "
                "folder",
            )
    return session


def _bronze(rows: DataFrame, batch: int) -> DataFrame:
    return (
        rows.withColumnRenamed("timestampType", "timestamp_type")
        .withColumns({"batch": F.lit(batch).cast("long"), "date": F.expr(_DATE)})
        .select(BRONZE.schema.names)
    )
