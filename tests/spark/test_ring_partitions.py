"""The job computes a record's queue, and its partition, exactly as the processor does."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import FetchedRecord
from ringfaust.protocol.routes import Route, RouteTemplate
from ringfaust.spark.frames import shuffle_keys
from ringfaust.spark.kafka import queue_name
from ringfaust.spark.options import RingOptions
from ringfaust.spark.ring import job
from ringfaust.spark.ring.job import _input_rows, _queue_partition

SCHEMA = "topic string, key binary, headers array<struct<key:string, value:binary>>"
HEADERS = [("kind", b"old"), ("other", b"x"), ("kind", b"new")]


@pytest.mark.parametrize(
    "template",
    ["plain", "{topic}", "q.{key}", "{header:kind}", "{topic}.{header:other}.{key}"],
)
def test_job_and_processor_name_the_same_queue(spark: SparkSession, template: str) -> None:
    record = FetchedRecord("orders", 0, 0, 0, 0, b"k", b"", HEADERS)
    rows = spark.createDataFrame([("orders", b"k", HEADERS)], SCHEMA)
    found = rows.select(queue_name(RouteTemplate(template)).alias("queue")).first()
    assert found is not None
    assert found["queue"] == RouteTemplate(template).queue_of(record)


def test_a_missing_header_names_no_queue(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("orders", b"k", HEADERS)], SCHEMA)
    found = rows.select(queue_name(RouteTemplate("{header:none}")).alias("queue")).first()
    assert found is not None
    assert found["queue"] is None


def test_a_record_goes_to_the_partition_of_its_queue_or_stays_in_its_own(
    spark: SparkSession,
) -> None:
    keys = [b"a", b"b", None, b"c", b"\xff"]
    rows = spark.createDataFrame(
        [("orders", number, key, HEADERS) for number, key in enumerate(keys)],
        "topic string, partition int, key binary, headers array<struct<key:string, value:binary>>",
    )
    partition = _queue_partition([Route("orders", "q.{key}")], 4)
    found = [row.found for row in rows.select(partition.alias("found")).collect()]
    assert found == [
        number % 4 if key in (None, b"\xff") else partition_of(b"q." + key, 4)
        for number, key in enumerate(keys)
    ]


@pytest.mark.parametrize(("hop", "most"), [("auto", ["7"]), ("always", ["3", "3"])])
def test_a_micro_batch_has_no_more_records_than_asked_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, hop: str, most: list[str]
) -> None:
    """Spark limits each source: topics that are repartitioned are the second one."""
    asked: list[str] = []

    def read(*given: Any) -> DataFrame:
        asked.append(given[-1]["maxOffsetsPerTrigger"])
        columns = f"{SCHEMA}, partition int, offset long, timestamp timestamp, timestampType int"
        return spark.createDataFrame([], f"{columns}, value binary")

    monkeypatch.setattr(job, "stream_topics", read)
    worker = WorkerConfig(application="app", partitions=4)
    queues = QueuesConfig.model_validate(
        {"routes": [{"topic": "in", "queue": "q.{key}", "hop": hop}], "queues": {"q.*": {}}}
    )
    _input_rows(spark, worker, queues, RingOptions("/data/rings", batch_records=7), None)
    assert asked == most


def test_shuffle_keys_give_every_task_equally_many_partitions(spark: SparkSession) -> None:
    keys = shuffle_keys(spark, 8, 4)
    rows = spark.createDataFrame([(key,) for key in keys], "key int").repartition(4, "key")
    assert sorted(map(len, rows.rdd.glom().collect())) == [2, 2, 2, 2]
    assert len(set(keys)) == 8
