"""What each run of the job knew when it started, kept beside its checkpoint.

After a start, time waits until the log that was already there has been read (architecture 4). A
batch that a run left unfinished is done again by the next one, and must come out the same: it finds
the start of the run that first did it by its time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from ringfaust.hosts.spark.turn import Start

_FILE = "ringfaust/starts.json"
_KEPT = 5
_STEP_BACK = 32
"""Offsets at first; behind the last record there may be any number of transaction markers."""
_POLL_MS = 2_000


def note_start(
    spark: SparkSession, checkpoint: str, client: Mapping[str, Any], topics: Collection[str]
) -> list[Start]:
    """Look where the logs end now, and note it; this start and the last ones, oldest first.

    Args:
        spark: reaches the checkpoint, wherever it is.
        checkpoint: folder or URI.
        client: options of any Kafka client.
        topics: which are read directly, control among them.
    """
    path, files = _hadoop_path(spark, checkpoint)
    known = [_from_json(start) for start in json.loads(_read(spark, files, path) or "[]")]
    now_ms = max([time.time_ns() // 1_000_000, *(start.started_ms + 1 for start in known)])
    ends = asyncio.run(_record_ends(client, topics))
    starts = [*known[1 - _KEPT :], Start(started_ms=now_ms, ends=ends)]
    _write(files, path, json.dumps([asdict(start) for start in starts]))
    return starts


def _from_json(start: Mapping[str, Any]) -> Start:
    ends = {topic: {int(p): end for p, end in of.items()} for topic, of in start["ends"].items()}
    return Start(started_ms=start["started_ms"], ends=ends)


async def _record_ends(
    client: Mapping[str, Any], topics: Collection[str]
) -> dict[str, dict[int, int]]:
    """By topic and partition, one beyond the last committed record; empty ones left out."""
    consumer = AIOKafkaConsumer(*topics, **client, isolation_level="read_committed")
    await consumer.start()
    try:
        tps = list(consumer.assignment())
        begins = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        found: dict[str, dict[int, int]] = {}
        for tp in tps:
            if (end := await _record_end(consumer, tp, begins[tp], ends[tp])) is not None:
                found.setdefault(tp.topic, {})[tp.partition] = end
        return found
    finally:
        await consumer.stop()


async def _record_end(
    consumer: AIOKafkaConsumer, tp: TopicPartition, begin: int, end: int
) -> int | None:
    """One beyond the last record before `end`; what stands last are often markers, no records."""
    back = _STEP_BACK
    upper = end
    while upper > begin:
        at = max(begin, upper - back)
        consumer.seek(tp, at)
        last = None
        while await consumer.position(tp) < upper:
            for record in (await consumer.getmany(tp, timeout_ms=_POLL_MS)).get(tp, []):
                if record.offset < upper:
                    last = record.offset
        if last is not None:
            return int(last) + 1
        upper, back = at, back * 8
    return None


# --- the file -------------------------------------------------------------------------------------


def _hadoop_path(spark: SparkSession, checkpoint: str) -> tuple[Any, Any]:
    """The file, and the file system that it is in: whatever Spark can keep a checkpoint in."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the one way from Python to Hadoop's file systems
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, _FILE)
    return path, path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001


def _read(spark: SparkSession, files: Any, path: Any) -> str | None:
    if not files.exists(path):
        return None
    return spark.read.text(path.toString(), wholetext=True).collect()[0][0]  # type: ignore[no-any-return]


def _write(files: Any, path: Any, text: str) -> None:
    """As a whole: beside it first, then in its place."""
    fresh = path.suffix(".new")
    stream = files.create(fresh, True)
    stream.write(text.encode())
    stream.close()
    files.delete(path, False)
    files.rename(fresh, path)
