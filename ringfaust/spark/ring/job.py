"""The job: topics in, grouped by the partition that a queue lives in, topics out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.processor.processor import ProcessorConfig
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import Role
from ringfaust.protocol.routes import PART, Route
from ringfaust.spark.columns import HEADER_COLUMNS, LAYOUTS
from ringfaust.spark.kafka import client_options, stream_topics
from ringfaust.spark.ring.micro_batch import Plan, Start
from ringfaust.spark.ring.operator import OUTPUT, RingOperator

OUR_OUTPUTS = (Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES)
"""The job's outputs; changelog and hop are Spark's own state and shuffle."""
STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""What the session of a ring job has to be opened with."""
_COLUMN_PRUNING = "org.apache.spark.sql.catalyst.optimizer.ColumnPruning"
_HEADERS = "array<struct<key:string,value:binary>>"
_NUMBERS_LOOKED_AT = 50
_REQUEST_BYTES = 4_000_000
"""What may come out of the largest record that goes in, and its headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """How a job runs, beside what `queues.yaml` and `worker.yaml` say."""

    checkpoint: str
    """Folder or URI; the state is kept there."""
    trigger_ms: int
    """Least time between the starts of two micro-batches."""
    batch_records: int
    """Most records of all partitions in one micro-batch."""
    tasks: int
    """Into how many the partitions are dealt; the number that the checkpoint began with."""


def seats(spark: SparkSession, partitions: int, tasks: int) -> list[int]:
    """A group's number for each partition, so that every task has as many of them as the others.

    Spark deals groups to tasks by a hash, which gives some three of them and others none. Of
    successive numbers we take for each partition the next that falls to its task.
    """
    numbers = spark.range(_NUMBERS_LOOKED_AT * partitions).select(F.col("id").cast("int"))
    dealt = numbers.select("id", F.pmod(F.hash("id"), F.lit(tasks)).alias("task")).collect()
    free: dict[int, list[int]] = {}
    for number, task in dealt:
        free.setdefault(task, []).append(number)
    return [free[partition % tasks][partition // tasks] for partition in range(partitions)]


def start_job(
    spark: SparkSession,
    worker: WorkerConfig,
    queues: QueuesConfig,
    settings: JobSettings,
    starts: list[Start],
    *,
    state: DataFrame | None = None,
    offsets: Mapping[str, Mapping[str, int]] | None = None,
) -> StreamingQuery:
    """Start the rings; the query that runs.

    Args:
        spark: opened with `STATE`.
        worker: names brokers and topics.
        queues: routes and queues.
        settings: of this job.
        starts: see `Plan`.
        state: rows of a worker's changelog to begin with (home, row_key, row_value).
        offsets: where a job without checkpoint begins, by topic and partition; -2 is the earliest.
    """
    direct, hopping = queues.split_routes(worker.partitions)
    processor_config = ProcessorConfig(
        control_topic=worker.topic(Role.CONTROL),
        hop_topic="",  # the shuffle brings those records home
        routes=[*direct, *hopping],
        max_record_bytes=worker.max_record_bytes,
        log_is_clock=worker.clock == "log",
        spread=frozenset(route.topic for route in hopping),
    )
    plan = Plan(
        processor_config=processor_config,
        catalog=queues.catalog(),
        cache_bytes=worker.cache_bytes // worker.partitions,
        starts=starts,
    )
    options = {
        "maxOffsetsPerTrigger": str(settings.batch_records),
        "failOnDataLoss": "true",
    }

    def stream(topics: list[str]) -> DataFrame:
        begin = {topic: offsets[topic] for topic in topics} if offsets else None
        told = {"startingOffsets": json.dumps(begin)} if begin else {}
        return stream_topics(spark, worker, topics, options | told)

    rows = _rows(stream(topics_at_home(worker, queues)), F.col("partition"))
    if hopping:
        hopped = stream([route.topic for route in hopping])
        rows = rows.union(_rows(hopped, _home(hopping, worker.partitions)))
    topics = {role: worker.topic(role) for role in OUR_OUTPUTS}
    spark.conf.set("spark.sql.shuffle.partitions", settings.tasks)
    seat_of = seats(spark, worker.partitions, settings.tasks)
    if state is not None:
        # It believes that of an initial state nothing but the group is needed.
        spark.conf.set("spark.sql.optimizer.excludedRules", _COLUMN_PRUNING)
    outputs = _seated(rows, seat_of).transformWithStateInPandas(
        statefulProcessor=RingOperator(plan, topics, seat_of),
        outputStructType=OUTPUT,
        outputMode="Append",
        timeMode="None" if processor_config.log_is_clock else "ProcessingTime",
        initialState=None if state is None else _seated(state, seat_of),
    )
    writer = (
        _sink_rows(outputs)
        .writeStream.format("kafka")
        .options(**client_options(worker))
        .option("kafka.max.request.size", str(_REQUEST_BYTES))
        .option("kafka.linger.ms", "5")
        .option("kafka.batch.size", "400000")
        .option("includeHeaders", "true")
        .option("checkpointLocation", settings.checkpoint)
        .queryName(f"{worker.application} rings")
        .outputMode("append")
    )
    return writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()


def topics_at_home(worker: WorkerConfig, queues: QueuesConfig) -> list[str]:
    """Control, and the producers' topics whose records are in their home partition already."""
    direct, _ = queues.split_routes(worker.partitions)
    return [worker.topic(Role.CONTROL), *(route.topic for route in direct)]


def hopping_routes(worker: WorkerConfig, queues: QueuesConfig) -> list[Route]:
    """Those whose records the shuffle brings home."""
    return queues.split_routes(worker.partitions)[1]


def _rows(records: DataFrame, home: Column) -> DataFrame:
    """The topics' records in the columns that the host reads."""
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
        home.alias("home"),
    )


def _seated(rows: DataFrame, seat_of: list[int]) -> GroupedData:
    return rows.withColumn("seat", F.get(F.lit(seat_of), "home")).groupBy("seat")


def _sink_rows(outputs: DataFrame) -> DataFrame:
    headers = F.arrays_zip("names", "contents").cast(_HEADERS)
    for number, names in enumerate(LAYOUTS):
        pairs = [
            F.struct(F.lit(name).alias("key"), F.col(column).alias("value"))
            for name, column in zip(names, HEADER_COLUMNS, strict=False)
        ]
        known = F.array(*pairs) if pairs else F.array().cast(_HEADERS)
        headers = F.when(F.col("layout") == number, known).otherwise(headers)
    return outputs.select("topic", "partition", "key", "value", headers.alias("headers"))


# --- home -----------------------------------------------------------------------------------------


def _home(routes: list[Route], partitions: int) -> Column:
    """The partition of a record's queue; one that names none is told of by its own partition's."""

    @pandas_udf("int")  # type: ignore[call-overload, untyped-decorator]
    def home(names: pd.Series) -> pd.Series:
        return names.map(cache(lambda name: partition_of(name, partitions)))

    queue = F.coalesce(*(F.when(F.col("topic") == r.topic, _queue_name(r)) for r in routes))
    own = F.col("partition") % partitions
    return F.coalesce(home(queue), own).cast("int")


def _queue_name(route: Route) -> Column:
    """A route's template against each record; null where the record lacks the part."""
    parts: list[Any] = []
    for index, part in enumerate(PART.split(route.queue)):
        if index % 2 == 0:
            parts.append(F.lit(part))
        elif part == "topic":
            parts.append(F.lit(route.topic))
        elif part == "key":
            parts.append(F.col("key").cast("string"))
        else:
            parts.append(_header(part.removeprefix("header:")))
    return F.concat(*parts)


def _header(name: str) -> Column:
    """The header's value; the last one where there are several, as the road reads them."""
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.get(found, F.size(found) - 1)["value"].cast("string")
