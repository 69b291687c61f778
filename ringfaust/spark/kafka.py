"""Topics as DataFrames: Spark's Kafka source and sink, in our configuration's words."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame, SparkSession

from ringfaust.config import WorkerConfig


def client_options(worker: WorkerConfig) -> dict[str, str]:
    """Where the brokers are and how to speak to them, for source and sink alike."""
    return {
        "kafka.bootstrap.servers": worker.bootstrap_servers,
        **worker.security.java_options("kafka."),
    }


def source_options(worker: WorkerConfig, topics: Collection[str]) -> dict[str, str]:
    """Committed records of the topics, headers with them; from the beginning unless told."""
    return {
        **client_options(worker),
        "subscribe": ",".join(sorted(topics)),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "startingOffsets": "earliest",
    }


def read_topics(
    spark: SparkSession,
    worker: WorkerConfig,
    topics: Collection[str],
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """All that the topics hold now, as a batch.

    Columns: key, value, topic, partition, offset, timestamp, timestampType, headers.
    """
    reader = spark.read.format("kafka").options(**source_options(worker, topics))
    return reader.options(**dict(options or {})).load()


def stream_topics(
    spark: SparkSession,
    worker: WorkerConfig,
    topics: Collection[str],
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """What the topics hold and all that comes, as a stream; columns as of `read_topics`."""
    reader = spark.readStream.format("kafka").options(**source_options(worker, topics))
    return reader.options(**dict(options or {})).load()
