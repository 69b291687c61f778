"""The job: topics in, grouped by the partition that a queue lives in, topics out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

import pandas as pd
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import Route, RouteTemplate
from ringfaust.spark.frames import shuffle_key_of, shuffle_keys
from ringfaust.spark.kafka import queue_name, stream_topics
from ringfaust.spark.options import RingOptions
from ringfaust.spark.ring.micro_batch import JobStart, OperatorConfig, batch_rules
from ringfaust.spark.ring.monitor import OBSERVED
from ringfaust.spark.ring.operator import OUTPUT, RingOperator
from ringfaust.spark.ring.writer import COUNTS, OutputTarget
from ringfaust.spark.vendor import COLUMN_PRUNING

SESSION_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""Settings that the session of a ring job must be opened with."""
SHUFFLE_KEY = "seat"
"""Column that the job groups by. Checkpoints contain this name, so it never changes."""


def start_job(
    spark: SparkSession,
    worker: WorkerConfig,
    used: InUse,
    settings: RingOptions,
    *,
    starts: list[JobStart],
    target: OutputTarget,
    state: DataFrame | None = None,
    offsets: Mapping[str, Mapping[str, int]] | None = None,
) -> StreamingQuery:
    """Start the rings.

    `state` has initial rows, from a worker's changelog (queue_partition, row_key, row_value), and
    `offsets` say where a job without a checkpoint begins; -2 is the earliest offset.
    """
    spark.conf.set("spark.sql.shuffle.partitions", settings.tasks)
    if state is not None:
        # The rule believes that only the group key of an initial state is needed.
        spark.conf.set("spark.sql.optimizer.excludedRules", COLUMN_PRUNING)
    keys = shuffle_keys(spark, worker.partitions, settings.tasks)
    config = OperatorConfig(
        rules=batch_rules(worker, used.queues, used.first),
        cache_bytes=worker.cache_bytes // worker.partitions,
        starts=starts,
    )
    rows = _input_rows(spark, worker, used.queues, settings, offsets)
    outputs = _grouped(rows, keys).transformWithStateInPandas(
        statefulProcessor=RingOperator(config, target, keys),
        outputStructType=OUTPUT,
        outputMode="Append",
        timeMode="None" if config.rules.processor_config.log_is_clock else "ProcessingTime",
        initialState=None if state is None else _grouped(state, keys),
    )
    writer = (
        outputs.observe(OBSERVED, *(F.sum(name).alias(name) for name in COUNTS))
        .writeStream.format("noop")  # the operator has written the outputs
        .option("checkpointLocation", settings.checkpoint)
        .queryName(f"{worker.application} rings")
        .outputMode("append")
    )
    return writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()


def direct_topics(worker: WorkerConfig, queues: QueuesConfig) -> list[str]:
    """Control, and the producers' topics whose records are in their queue's partition already."""
    direct, _ = queues.split_routes(worker.partitions)
    return [worker.topic(Role.CONTROL), *(route.topic for route in direct)]


def repartitioned_routes(worker: WorkerConfig, queues: QueuesConfig) -> list[Route]:
    """The routes whose records the shuffle brings to their queue's partition."""
    return queues.split_routes(worker.partitions)[1]


# --- rows -----------------------------------------------------------------------------------------


def _input_rows(
    spark: SparkSession,
    worker: WorkerConfig,
    queues: QueuesConfig,
    settings: RingOptions,
    offsets: Mapping[str, Mapping[str, int]] | None,
) -> DataFrame:
    """The records of all input topics, each with the partition of its queue."""
    routes = repartitioned_routes(worker, queues)
    # Spark's limit is one for each source.
    most = max(1, settings.batch_records // (2 if routes else 1))
    options = {"maxOffsetsPerTrigger": str(most), "failOnDataLoss": "true"}

    def stream(topics: list[str]) -> DataFrame:
        begin = {topic: offsets[topic] for topic in topics} if offsets else None
        starting = {"startingOffsets": json.dumps(begin)} if begin else {}
        return stream_topics(spark, worker, topics, options | starting)

    rows = _with_partition(stream(direct_topics(worker, queues)), F.col("partition"))
    if routes:
        records = stream([route.topic for route in routes])
        partition = _queue_partition(routes, worker.partitions)
        rows = rows.union(_with_partition(records, partition))
    return rows


def _with_partition(records: DataFrame, partition: Column) -> DataFrame:
    """A topic's records in the columns of `read_records`, and the partition of their queue."""
    pairs = F.transform("headers", lambda h: F.array(h["key"].cast("binary"), h["value"]))
    return records.select(
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        "timestampType",
        "key",
        "value",
        F.flatten(pairs).alias("flat"),
        partition.alias("queue_partition"),
    )


def _grouped(rows: DataFrame, keys: list[int]) -> GroupedData:
    key = shuffle_key_of(keys, "queue_partition")
    return rows.withColumn(SHUFFLE_KEY, key).groupBy(SHUFFLE_KEY)


# --- the partition of a record's queue ------------------------------------------------------------


def _queue_partition(routes: list[Route], partitions: int) -> Column:
    """The partition of a record's queue.

    A record that names no queue goes to its own partition, which reports it as undecodable.
    """

    @pandas_udf("int")  # type: ignore[call-overload, untyped-decorator]
    def of_queue(names: pd.Series) -> pd.Series:
        by_name = cache(lambda name: partition_of(name, partitions))
        return names.map(by_name, na_action="ignore")

    names = {route.topic: queue_name(RouteTemplate(route.queue)) for route in routes}
    queue = F.coalesce(*(F.when(F.col("topic") == topic, name) for topic, name in names.items()))
    own = F.col("partition") % partitions
    return F.coalesce(of_queue(queue), own).cast("int")
