"""`ringfaust spark ring` and `ringfaust spark move-to-worker`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.topics import WrongTopics, check_topics
from ringfaust.errors import RingfaustError
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.ring import move
from ringfaust.spark.ring.checkpoint import (
    CheckpointIdentity,
    claim_checkpoint,
    is_finished,
    last_planned,
    record_start,
)
from ringfaust.spark.ring.job import (
    SESSION_SETTINGS,
    JobSettings,
    direct_topics,
    repartitioned_routes,
    start_job,
)
from ringfaust.spark.ring.offsets import log_ends
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested
from ringfaust.spark.vendor import stop_between_batches

_MIN_SPARK = (4, 0, 2)
_POLL_S = 1
_STOP_S = 60


class OldSpark(RingfaustError):
    """This version of Spark cannot keep the rings' state.

    Attributes:
        version: the cluster's or the installed one.
    """

    def __init__(self, version: str) -> None:
        minimum = ".".join(map(str, _MIN_SPARK))
        super().__init__(
            f"Spark {version} may truncate a large piece of state when it reads it, and end the "
            f"job (SPARK-53870): use Spark {minimum} or newer"
        )
        self.version = version


def refuse_old_spark(version: str) -> None:
    """Check that Spark reads state values completely.

    Raises:
        OldSpark: it is older than 4.0.2.
    """
    if tuple(int(number) for number in re.findall(r"\d+", version)[:3]) < _MIN_SPARK:
        raise OldSpark(version)


def run(
    worker: WorkerConfig,
    queues: QueuesConfig,
    settings: JobSettings,
    *,
    once: bool,
    from_worker: bool,
    master: str | None,
) -> None:
    """Run the rings until SIGTERM or SIGINT.

    Args:
        worker: names brokers and topics.
        queues: routes and queues.
        settings: of the job.
        once: end when everything has been read that was in the topics at the start.
        from_worker: begin with what the worker's rings hold.
        master: as for `spark-submit --master`.

    Raises:
        WrongTopics: the topics do not have the required settings.
        BrokerUnreachable: no broker answers.
        CannotMove: the worker's rings cannot be taken over now.
        WrongCheckpoint: the checkpoint belongs to another job.
        OldSpark: this version of Spark cannot keep the state.
        JobFailed: Spark ended the job with an error.
    """
    problems = [p for p in asyncio.run(check_topics(worker, queues)) if p.severity == "error"]
    if problems:
        raise WrongTopics(problems)
    if from_worker:
        asyncio.run(move.refuse_if_running(worker))  # starting Spark first would take a while
    spark = open_session(f"{worker.application} rings", master, SESSION_SETTINGS)
    refuse_old_spark(spark.version)
    with brief_errors(), stop_requested() as requested:
        begin = _initial_state(spark, worker, queues, settings) if from_worker else {}
        _run_queries(spark, worker, queues, settings, begin=begin, requested=requested, once=once)
    spark.stop()


def run_move_to_worker(
    worker: WorkerConfig, queues: QueuesConfig, checkpoint: str, master: str | None
) -> int:
    """Hand the state of a stopped job over to the worker.

    Returns:
        The number of rows written.

    Raises:
        CannotMove: it cannot be done now.
        JobFailed: the checkpoint cannot be read.
    """
    asyncio.run(move.refuse_if_running(worker))  # starting Spark first would take a while
    spark = open_session(f"{worker.application} move", master, SESSION_SETTINGS)
    with brief_errors():
        rows = move.move_to_worker(spark, worker, queues, checkpoint)
    spark.stop()
    return rows


def _initial_state(
    spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, settings: JobSettings
) -> dict[str, Any]:
    """Arguments of `start_job` that make it begin with the worker's rings."""
    if last_planned(spark, settings.checkpoint) is not None:
        raise move.CannotMove(
            f"{settings.checkpoint} belongs to a job that has already begun: omit --from-worker to "
            "continue it, or give a new folder"
        )
    state = move.worker_state(spark, worker)
    return {"state": state, "offsets": move.worker_offsets(state, worker, queues)}


def _run_queries(
    spark: SparkSession,
    worker: WorkerConfig,
    queues: QueuesConfig,
    settings: JobSettings,
    *,
    begin: dict[str, Any],
    requested: Callable[[], bool],
    once: bool,
) -> None:
    wanted = CheckpointIdentity(
        application=worker.application,
        partitions=worker.partitions,
        tasks=min(settings.tasks, worker.partitions),
    )
    identity = claim_checkpoint(spark, settings.checkpoint, wanted)
    settings = replace(settings, tasks=identity.tasks)
    client = worker.client_options()
    direct = direct_topics(worker, queues)
    inputs = [*direct, *(route.topic for route in repartitioned_routes(worker, queues))]
    starts = record_start(spark, settings.checkpoint, client, direct)
    ends = asyncio.run(log_ends(client, inputs)) if once else None
    while True:
        query = start_job(spark, worker, queues, settings, starts, **begin)
        reached_ends = _await_end(query, ends, requested)
        # A timer may begin a micro-batch just as the query stops. Another query has to finish it.
        if not reached_ends or is_finished(spark, settings.checkpoint):
            return
        begin = {}  # now the checkpoint has them


def _await_end(
    query: StreamingQuery,
    ends: Mapping[str, Mapping[int, int]] | None,
    requested: Callable[[], bool],
) -> bool:
    """Wait for an error, a requested stop or, with `ends`, for the query to reach these offsets.

    Spark's `availableNow` trigger never ends a job that has timers.

    Returns:
        Whether the query has reached `ends`.
    """
    reached = False
    while not (reached or requested() or query.awaitTermination(_POLL_S)):
        reached = ends is not None and _has_read(query.lastProgress, ends)
    stop_between_batches(query, _STOP_S)
    return reached


def _has_read(
    progress: StreamingQueryProgress | None, ends: Mapping[str, Mapping[int, int]]
) -> bool:
    """Whether the last reported batch, or one before it, ends at or after these offsets."""
    read: dict[str, dict[str, int]] = {}
    # As an attribute the offsets are text, of JSON or of Python depending on the version.
    for source in json.loads(progress.json)["sources"] if progress else ():
        read |= source["endOffset"] or {}
    return all(
        read.get(topic, {}).get(str(partition), 0) >= end
        for topic, of in ends.items()
        for partition, end in of.items()
    )
