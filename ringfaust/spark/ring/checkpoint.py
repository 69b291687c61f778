"""The job's own files, kept beside Spark's checkpoint.

`ringfaust/job.json` says which job the checkpoint belongs to. `ringfaust/starts.json` says what the
last runs found when they started: after a start, time stands still until the records that were
already in the topics have been processed (docs/architecture.md#time). A batch that one run left
unfinished is repeated by the next run and must produce the same output, so it looks up the run that
first processed it, and uses that run's configuration.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.errors import RingfaustError
from ringfaust.kafka.reader import last_record, subscribed_reader
from ringfaust.spark.files import HadoopFolder, last_committed, last_planned, planned_sources
from ringfaust.spark.ring.micro_batch import BatchRules, JobStart, batch_rules
from ringfaust.spark.topic_ids import ReadTopicIds
from ringfaust.times import wall_ms

_STARTS = "ringfaust/starts.json"
_IDENTITY = "ringfaust/job.json"
_DECISIVE = ("max_record_bytes", "clock", "cloud_events")
"""The settings of worker.yaml that decide what a batch does."""
_STARTS_KEPT = 4
"""Latest starts that are kept, needed or not: they help to understand a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIdentity:
    """What a checkpoint belongs to. It never changes."""

    application: str
    partitions: int
    tasks: int
    """The shuffle keys depend on it. Spark keeps the number, and so does the job."""
    query: str = ""
    """Tells the outputs of this checkpoint's job from those of another one."""


class WrongCheckpoint(RingfaustError):
    """The checkpoint belongs to another job, which the text names. Nothing was changed."""


def read_identity(spark: SparkSession, checkpoint: str) -> CheckpointIdentity | None:
    """What a checkpoint belongs to, or None if it is new."""
    text = HadoopFolder(spark, checkpoint).read_text(_IDENTITY)
    return None if text is None else CheckpointIdentity(**json.loads(text))


def claim_checkpoint(
    spark: SparkSession, checkpoint: str, wanted: CheckpointIdentity
) -> CheckpointIdentity:
    """Write the identity of a new checkpoint; check that of an existing one, and return it.

    Its number of tasks may differ from `wanted`.

    Raises:
        WrongCheckpoint: it belongs to another application or number of partitions.
    """
    known = read_identity(spark, checkpoint) or wanted
    for name in ("application", "partitions"):
        has, asked = getattr(known, name), getattr(wanted, name)
        if has != asked:
            raise WrongCheckpoint(
                f"{checkpoint} belongs to a job whose {name} is {has!r}, but worker.yaml says "
                f"{asked!r}: give each application its own checkpoint"
            )
    if not known.query:
        known = replace(known, query=str(uuid.uuid4()))
        HadoopFolder(spark, checkpoint).write_text(_IDENTITY, json.dumps(asdict(known)))
    return known


def check_topics_read(
    spark: SparkSession, checkpoint: str, direct: Collection[str], repartitioned: Collection[str]
) -> None:
    """Check that a job still reads, in the same way, each topic that its checkpoint has read.

    Spark ties the state to the topics: it can go on with others only in a new checkpoint.

    Raises:
        WrongCheckpoint: it does not; the text says how to go on.
    """
    sources = planned_sources(spark, checkpoint, last_planned(spark, checkpoint))
    then = {topic: number for number, source in enumerate(sources) for topic in source}
    now = dict.fromkeys(direct, 0) | dict.fromkeys(repartitioned, 1)
    moved = [topic for topic in then if topic in now and then[topic] != now[topic]]
    first = {*repartitioned} - {*then} if len(sources) == 1 else ()
    found = {
        "{}, which no route names any more": [topic for topic in then if topic not in now],
        "{}, whose hop was changed": moved,
        "no topic that is repartitioned, as {} is": first,
    }
    faults = [text.format(", ".join(sorted(of))) for text, of in found.items() if of]
    if faults:
        between = ". Start a worker in between, which says whether queues would move" * bool(moved)
        raise WrongCheckpoint(
            f"{checkpoint} has read {'; '.join(faults)}. Put the routes back, or continue in a new "
            f"folder: `ringfaust spark move-to-worker --checkpoint {checkpoint}`, then "
            f"`ringfaust spark ring --from-worker --checkpoint NEW`{between}"
        )


def read_topic_ids(spark: SparkSession, worker: WorkerConfig, checkpoint: str) -> ReadTopicIds:
    """The ids of the topics that the job of a checkpoint has read."""
    return ReadTopicIds(
        spark,
        f"{checkpoint}/ringfaust",
        worker,
        f"the job of {checkpoint}",
        "Hand the rings to the worker, which reads the new topic from its beginning and reports "
        f"what is missing: `ringfaust spark move-to-worker --checkpoint {checkpoint}`, then start "
        "workers. From there they move to a new checkpoint: `ringfaust spark ring --from-worker "
        "--checkpoint NEW`",
    )


async def record_ends(
    client: Mapping[str, Any], topics: Collection[str]
) -> dict[str, dict[int, int]]:
    """By topic and partition, one past the last committed record. Empty partitions are left out."""
    async with subscribed_reader(client, topics) as consumer:
        tps = list(consumer.assignment())
        begins = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        found: dict[str, dict[int, int]] = {}
        for tp in tps:
            last = await last_record(consumer, tp, begins[tp], ends[tp])
            if last is not None:
                found.setdefault(tp.topic, {})[tp.partition] = int(last.offset) + 1
        return found


async def log_ends(
    client: Mapping[str, Any], topics: Collection[str]
) -> dict[tuple[str, int], int]:
    """By topic and partition, the end of the committed log, transaction markers included."""
    async with subscribed_reader(client, topics) as consumer:
        ends = await consumer.end_offsets(list(consumer.assignment()))
    return {(tp.topic, tp.partition): end for tp, end in ends.items()}


def record_start(
    spark: SparkSession,
    checkpoint: str,
    worker: WorkerConfig,
    used: InUse,
    topics: Collection[str],
) -> list[JobStart]:
    """Record where the topics end now, and the configuration.

    `topics` are control, and the producers' topics that need no repartitioning. Returns this start
    and the earlier ones that are still needed, oldest first.
    """
    folder = HadoopFolder(spark, checkpoint)
    known = json.loads(folder.read_text(_STARTS) or "[]")
    # Version 0.2.0 finds the run of a batch by this time.
    now_ms = max([wall_ms(), *(start["started_ms"] + 1 for start in known)])
    config = {
        "queues": _as_json(used.queues),
        "worker": {name: getattr(worker, name) for name in _DECISIVE},
    }
    if used.first != used.queues:
        config["first"] = _as_json(used.first)
    start = {
        "started_ms": now_ms,
        "ends": asyncio.run(record_ends(worker.client_options(), topics)),
        "first_batch": last_planned(spark, checkpoint) + 1,
        **config,
    }
    unfinished = last_committed(spark, checkpoint) + 1
    starts = [*needed_starts(known, unfinished), start]
    folder.write_text(_STARTS, json.dumps(starts))
    return [_job_start(each, config, worker) for each in starts]


def needed_starts(starts: Sequence[dict[str, Any]], unfinished: int) -> list[dict[str, Any]]:
    """The starts that a batch may still ask for, oldest first.

    `unfinished` is the first batch that is not committed. The run that planned it is needed however
    often the job has started since: those starts planned nothing.
    """
    planners = [each for each in starts[:-_STARTS_KEPT] if each["first_batch"] <= unfinished]
    return [*planners[-1:], *starts[-_STARTS_KEPT:]]


def _as_json(queues: QueuesConfig) -> dict[str, Any]:
    return queues.model_dump(mode="json", exclude_unset=True)


def _job_start(
    text: Mapping[str, Any], current: Mapping[str, Any], worker: WorkerConfig
) -> JobStart:
    ends = {topic: {int(p): end for p, end in of.items()} for topic, of in text["ends"].items()}
    rules = _other_rules(text, current, worker)
    return JobStart(ends=ends, first_batch=text["first_batch"], rules=rules)


def _other_rules(
    text: Mapping[str, Any], current: Mapping[str, Any], worker: WorkerConfig
) -> BatchRules | None:
    """The rules of a start if they are not the current ones."""
    if "queues" not in text or all(text.get(name) == current[name] for name in current):
        return None
    then = worker.model_copy(update=text["worker"])
    queues, first = text["queues"], text.get("first", text["queues"])
    return batch_rules(
        then, QueuesConfig.model_validate(queues), QueuesConfig.model_validate(first)
    )
