"""Spark's own files in the checkpoint of a Structured Streaming query."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from ringfaust.spark.files import HadoopFolder


def last_planned(spark: SparkSession, checkpoint: str) -> int | None:
    """Number of the last micro-batch that Spark has planned, or None."""
    return max(HadoopFolder(spark, checkpoint).numbers("offsets"), default=None)


def is_finished(spark: SparkSession, checkpoint: str) -> bool:
    """Whether the last planned micro-batch, if any, has been committed."""
    planned = last_planned(spark, checkpoint)
    return planned is None or planned in HadoopFolder(spark, checkpoint).numbers("commits")


def planned_offsets(spark: SparkSession, checkpoint: str, batch: int) -> dict[str, dict[str, int]]:
    """By topic and partition, where a micro-batch ends."""
    sources = planned_sources(spark, checkpoint, batch)
    return {topic: at for source in sources for topic, at in source.items()}


def planned_sources(
    spark: SparkSession, checkpoint: str, batch: int
) -> list[dict[str, dict[str, int]]]:
    """The same for each source of the query, in their order; nothing if it has not begun."""
    lines = (HadoopFolder(spark, checkpoint).read_text(f"offsets/{batch}") or "").splitlines()
    return [json.loads(line) if line.startswith("{") else {} for line in lines[2:]]


def initial_offsets(spark: SparkSession, checkpoint: str) -> dict[str, dict[str, int]]:
    """By topic and partition, where the query began; empty if it has not."""
    text = HadoopFolder(spark, checkpoint).read_text("sources/0/0") or "{}"
    found: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])  # after the version
    return found


def committed_offsets(spark: SparkSession, checkpoint: str) -> dict[str, dict[str, int]]:
    """By topic and partition, how far the query has come; empty if there is no such query."""
    batch = max(HadoopFolder(spark, checkpoint).numbers("commits"), default=None)
    return {} if batch is None else planned_offsets(spark, checkpoint, batch)
