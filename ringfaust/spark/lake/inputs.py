"""The stream that copies what workers read to bronze, while routes come and go.

A Spark checkpoint is tied to its topics. When the topics change, the stream continues under a new
name with a new checkpoint, at the offsets that the earlier ones have reached. Those stay, so the
topic of a route that comes back is read from where it stopped.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import existing_partitions
from ringfaust.spark import files
from ringfaust.spark.lake.store import LakeError, LakeProgress
from ringfaust.spark.lake.tables import read

STREAM = "inputs"
"""Its first name. The others have a number."""
_EARLIEST = -2


def checkpoint(root: str, stream: str) -> str:
    """Folder of a stream's checkpoint, in the lake: neither is of use without the other."""
    return f"{root.rstrip('/')}/state/checkpoints/{stream}"


def names(spark: SparkSession, root: str) -> list[str]:
    """The names that the stream has had; it has the last one now."""
    found = [STREAM]
    while _has_begun(spark, root, following := _following(found)):
        found.append(following)
    return found


def _following(found: list[str]) -> str:
    return f"{STREAM}-{len(found) + 1}"


def _has_begun(spark: SparkSession, root: str, name: str) -> bool:
    is_there = files.HadoopFolder(spark, checkpoint(root, name)).exists()
    return is_there or LakeProgress(spark, root, name).batch >= 0


def complete(
    root: str, name: str, spark: SparkSession, batch: int, _bronze: DataFrame | None
) -> None:
    """Complete a batch: the records are in bronze, and only there."""
    LakeProgress(spark, root, name).complete(batch)


def continued(
    spark: SparkSession, root: str, worker: WorkerConfig, topics: Collection[str]
) -> tuple[str, dict[str, str]]:
    """Return the stream's name for these topics, which exist, and options of its source.

    Raises:
        LakeError: a topic has fewer partitions than the lake has read.
        BrokerUnreachable: no broker answers.
    """
    found = names(spark, root)
    last = checkpoint(root, found[-1])
    planned = files.planned_offsets(spark, last, files.last_planned(spark, last))
    begun = planned or files.initial_offsets(spark, last)
    if begun.keys() == set(topics):
        return found[-1], {}
    done: dict[str, dict[str, int]] = {}
    for name in found:
        done |= _in_bronze(spark, root, name)
    starting: dict[str, dict[str, int]] = {}
    existing = asyncio.run(existing_partitions(worker.brokers(), topics))
    for topic, partitions in Counter(tp.topic for tp in existing).items():
        known = done.get(topic, {})
        if len(known) > partitions:
            raise LakeError(
                root,
                f"has {len(known)} partitions of topic {topic}, which has only {partitions}: it "
                "was deleted and created again, so create a new lake in an empty folder",
            )
        starting[topic] = {str(n): known.get(str(n), _EARLIEST) for n in range(partitions)}
    name = _following(found) if begun else found[-1]
    return name, {"startingOffsets": json.dumps(starting)}


def _in_bronze(spark: SparkSession, root: str, name: str) -> dict[str, dict[str, int]]:
    """By topic and partition, up to which offset bronze has what the stream has read."""
    folder = checkpoint(root, name)
    found = files.initial_offsets(spark, folder) | files.committed_offsets(spark, folder)
    # The last batch may be in bronze without Spark's commit.
    rows = read(spark, root, "bronze").where(
        F.col("topic").isin(*found) & (F.col("batch") == files.last_planned(spark, folder))
    )
    ends = rows.groupBy("topic", "partition").agg(F.max("offset") + 1)
    for topic, partition, end in ends.collect():
        found[topic][str(partition)] = max(end, found[topic].get(str(partition), 0))
    return found
