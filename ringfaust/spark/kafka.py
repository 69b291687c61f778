"""Topics as DataFrames: Spark's Kafka source and sink, set up from our configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.protocol.cloud_events import ATTRIBUTES


def client_options(worker: WorkerConfig) -> dict[str, str]:
    """Options of source and sink: the brokers' addresses and security."""
    return {
        "kafka.bootstrap.servers": worker.bootstrap_servers,
        **worker.security.java_options("kafka."),
    }


def source_options(worker: WorkerConfig, topics: Collection[str]) -> dict[str, str]:
    """Options of a source of committed records with their headers, from the earliest offset."""
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
    """Read what the topics contain now, as a batch.

    Args:
        spark: the session.
        worker: brokers.
        topics: their names.
        options: of the source; these win over `source_options`.

    Returns:
        Columns key, value, topic, partition, offset, timestamp, timestampType, headers.
    """
    reader = spark.read.format("kafka").options(**source_options(worker, topics))
    return reader.options(**dict(options or {})).load()


def stream_topics(
    spark: SparkSession,
    worker: WorkerConfig,
    topics: Collection[str],
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read the topics as a stream; arguments and columns are those of `read_topics`."""
    reader = spark.readStream.format("kafka").options(**source_options(worker, topics))
    return reader.options(**dict(options or {})).load()


def without_attributes(headers: Column) -> Column:
    """Do what `protocol.cloud_events.without_attributes` does."""
    is_ours = F.try_element_at(headers, F.lit(-1))["key"] == ATTRIBUTES[-1]
    length = F.size(headers) - len(ATTRIBUTES)
    return F.when(is_ours, F.slice(headers, F.lit(1), length)).otherwise(headers)
