"""Topics as DataFrames: Spark's Kafka source and sink, set up from our configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.protocol.cloud_events import ATTRIBUTES
from ringfaust.protocol.routes import RouteTemplate

Options = Mapping[str, str] | None
"""Options of Spark's source, which win over those that it has from us."""


def client_options(worker: WorkerConfig) -> dict[str, str]:
    """Options of source and sink: the brokers' addresses and security."""
    return {
        "kafka.bootstrap.servers": worker.bootstrap_servers,
        **worker.security.java_options("kafka."),
    }


def read_topics(
    spark: SparkSession, worker: WorkerConfig, topics: Collection[str], options: Options = None
) -> DataFrame:
    """Read the committed records that the topics contain now, as a batch.

    It begins with the earliest offset. The columns are key, value, topic, partition, offset,
    timestamp, timestampType and headers.
    """
    return spark.read.format("kafka").options(**_source(worker, topics, options)).load()


def stream_topics(
    spark: SparkSession, worker: WorkerConfig, topics: Collection[str], options: Options = None
) -> DataFrame:
    """Read the topics as a stream; arguments and columns are those of `read_topics`."""
    return spark.readStream.format("kafka").options(**_source(worker, topics, options)).load()


def _source(worker: WorkerConfig, topics: Collection[str], options: Options) -> dict[str, str]:
    return {
        **client_options(worker),
        "subscribe": ",".join(sorted(topics)),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "startingOffsets": "earliest",
        **(options or {}),
    }


def without_attributes(headers: Column) -> Column:
    """Do what `protocol.cloud_events.without_attributes` does."""
    is_ours = F.try_element_at(headers, F.lit(-1))["key"] == ATTRIBUTES[-1]
    length = F.size(headers) - len(ATTRIBUTES)
    return F.when(is_ours, F.slice(headers, F.lit(1), length)).otherwise(headers)


def queue_name(template: RouteTemplate) -> Column:
    """Do what `RouteTemplate.queue_of` does; null if a part of it is missing or not UTF-8."""
    columns = [F.lit(template.texts[0])]
    for part, text in zip(template.parts, template.texts[1:], strict=True):
        columns += [_part(part), F.lit(text)]
    return F.concat(*columns)


def _part(part: str) -> Column:
    column = F.col(part) if part in ("topic", "key") else _header(part.removeprefix("header:"))
    return F.try_validate_utf8(column.cast("string"))


def _header(name: str) -> Column:
    """Of several headers with the same name the last one counts."""
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(found, F.lit(-1))["value"]
