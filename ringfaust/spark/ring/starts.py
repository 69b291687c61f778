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
from dataclasses import asdict, dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from ringfaust.errors import RingfaustError
from ringfaust.kafka.reader import read_to_end
from ringfaust.spark.ring.micro_batch import Start

_FILE = "ringfaust/starts.json"
_IDENTITY = "ringfaust/job.json"
_KEPT = 5
_STEP_BACK = 32
"""Offsets at first; behind the last record there may be any number of transaction markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a checkpoint is of, and never changes."""

    application: str
    partitions: int
    tasks: int
    """By this groups are dealt to tasks; Spark keeps the number, and so do we."""


class WrongCheckpoint(RingfaustError):
    """The checkpoint is of another job. Nothing was changed; the text says which."""


def read_identity(spark: SparkSession, checkpoint: str) -> Identity | None:
    """What a checkpoint is of; None for a new one."""
    text = read_text(spark, checkpoint, _IDENTITY)
    return None if text is None else Identity(**json.loads(text))


def settle_identity(spark: SparkSession, checkpoint: str, wanted: Identity) -> Identity:
    """Note what a new checkpoint is of; of a known one, see that it is of this job.

    Raises:
        WrongCheckpoint: it is not.
    """
    known = read_identity(spark, checkpoint)
    if known is None:
        _write(spark, checkpoint, _IDENTITY, json.dumps(asdict(wanted)))
        return wanted
    for name in ("application", "partitions"):
        has, asked = getattr(known, name), getattr(wanted, name)
        if has != asked:
            raise WrongCheckpoint(
                f"{checkpoint} is of a job whose {name} is {has!r}, but worker.yaml says "
                f"{asked!r}: give a checkpoint of its own to each application"
            )
    return known


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
    known = [_from_json(start) for start in json.loads(read_text(spark, checkpoint, _FILE) or "[]")]
    now_ms = max([time.time_ns() // 1_000_000, *(start.started_ms + 1 for start in known)])
    ends = asyncio.run(record_ends(client, topics))
    first_batch = max(numbers_in(spark, checkpoint, "offsets"), default=-1) + 1
    start = Start(started_ms=now_ms, ends=ends, first_batch=first_batch)
    starts = [*known[1 - _KEPT :], start]
    _write(spark, checkpoint, _FILE, json.dumps([asdict(start) for start in starts]))
    return starts


def _from_json(start: Mapping[str, Any]) -> Start:
    ends = {topic: {int(p): end for p, end in of.items()} for topic, of in start["ends"].items()}
    return Start(started_ms=start["started_ms"], ends=ends, first_batch=start.get("first_batch", 0))


async def record_ends(
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


async def log_ends(client: Mapping[str, Any], topics: Collection[str]) -> dict[str, dict[int, int]]:
    """By topic and partition, where the committed log ends."""
    consumer = AIOKafkaConsumer(*topics, **client, isolation_level="read_committed")
    await consumer.start()
    try:
        ends = await consumer.end_offsets(list(consumer.assignment()))
    finally:
        await consumer.stop()
    found: dict[str, dict[int, int]] = {}
    for tp, end in ends.items():
        found.setdefault(tp.topic, {})[tp.partition] = end
    return found


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
        async for records in read_to_end(consumer, {tp: upper}):
            before = [record.offset for record in records if record.offset < upper]
            last = before[-1] if before else last
        if last is not None:
            return int(last) + 1
        upper, back = at, back * 8
    return None


# --- files of the checkpoint ----------------------------------------------------------------------


def numbers_in(spark: SparkSession, checkpoint: str, folder: str) -> list[int]:
    """The numbers that are names of files in a folder of the checkpoint."""
    path, files = _hadoop(spark, checkpoint, folder)
    if not files.exists(path):
        return []
    names = [status.getPath().getName() for status in files.listStatus(path)]
    return [int(name) for name in names if name.isdigit()]


def read_text(spark: SparkSession, checkpoint: str, name: str) -> str | None:
    """What is in a file of the checkpoint; None if it is not there."""
    path, files = _hadoop(spark, checkpoint, name)
    if not files.exists(path):
        return None
    return str(spark.read.text(path.toString(), wholetext=True).collect()[0][0])


def _write(spark: SparkSession, checkpoint: str, name: str, text: str) -> None:
    """As a whole: beside it first, then in its place."""
    path, files = _hadoop(spark, checkpoint, name)
    fresh = path.suffix(".new")
    stream = files.create(fresh, True)
    stream.write(bytearray(text.encode()))
    stream.close()
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - see `_hadoop`
    hadoop = gateway.jvm.org.apache.hadoop.fs
    rename = getattr(hadoop, "Options$Rename")
    overwrite = gateway.new_array(rename, 1)
    overwrite[0] = rename.OVERWRITE
    hadoop.FileContext.getFileContext(path.toUri()).rename(fresh, path, overwrite)


def _hadoop(spark: SparkSession, checkpoint: str, name: str) -> tuple[Any, Any]:
    """A path, and the file system that it is in, whichever Spark can reach."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the one way from Python to Hadoop's file systems
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, name)
    return path, path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
