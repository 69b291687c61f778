"""`ringfaust spark ring` and `ringfaust spark move-to-worker`."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse, checked_configuration
from ringfaust.config.topics import WrongTopics
from ringfaust.errors import RingfaustError
from ringfaust.spark.applied import in_use
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.files import (
    forget_first_offsets,
    is_finished,
    last_committed,
    last_planned,
    plan_empty_batch,
)
from ringfaust.spark.options import RingOptions
from ringfaust.spark.ring import job, move, ownership
from ringfaust.spark.ring.checkpoint import (
    CheckpointIdentity,
    check_topics_read,
    claim_checkpoint,
    log_ends,
    read_topic_ids,
    record_start,
)
from ringfaust.spark.ring.monitor import JobMonitor
from ringfaust.spark.ring.writer import OutputTarget, claim_outputs, wrote_last
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested

_MIN_SPARK = (4, 0, 2)
_POLL_S = 1
_PAUSE_S = 0.02
_STOP_S = 10
_LONG_MS = 24 * 3_600_000
"""No second micro-batch begins within this time."""


class OldSpark(RingfaustError):
    """This version of Spark cannot keep the rings' state."""


def refuse_old_spark(version: str) -> None:
    """Raise OldSpark if Spark may read state values only in part."""
    if tuple(int(number) for number in re.findall(r"\d+", version)[:3]) < _MIN_SPARK:
        minimum = ".".join(map(str, _MIN_SPARK))
        raise OldSpark(
            f"Spark {version} may truncate a large piece of state when it reads it, and end the "
            f"job (SPARK-53870): use Spark {minimum} or newer"
        )


def run(worker: WorkerConfig, queues: QueuesConfig, settings: RingOptions) -> str:
    """Run the rings until SIGTERM or SIGINT, and return a sentence about what the job did.

    What was applied takes the place of queues.yaml (R128).

    Raises:
        WrongTopics: the topics do not have the required settings.
        BrokerUnreachable: no broker answers.
        CannotMove: workers run, or their rings cannot be taken over now.
        OtherOwner: another job or the workers have the rings.
        OtherCheckpoint: the rings were continued from another checkpoint since.
        WrongCheckpoint: the checkpoint belongs to another job.
        OldSpark: this version of Spark cannot keep the state.
        RecreatedTopic: a topic was deleted and created again since the job has read it.
        JobFailed: Spark ended the job with an error.
    """
    if settings.from_worker and settings.take_over:
        raise move.CannotMove(
            "--from-worker begins with what the worker's rings hold, and --take-over with empty "
            "rings: give one of them"
        )
    used, problems = asyncio.run(checked_configuration(worker, queues))
    if errors := [each for each in problems if each.severity == "error"]:
        raise WrongTopics(errors)
    if used.note:
        print(used.note, file=sys.stderr, flush=True)
    asyncio.run(move.refuse_if_running(worker))  # starting Spark first would take a while
    spark = open_session(f"{worker.application} rings", settings.master, job.SESSION_SETTINGS)
    with spark, brief_errors(), stop_requested() as requested:
        refuse_old_spark(spark.version)
        return _run_queries(spark, worker, used, settings, requested=requested)


def run_move_to_worker(
    worker: WorkerConfig, queues: QueuesConfig, checkpoint: str, master: str | None
) -> int:
    """Hand the state of a stopped job over to the worker. Returns the number of rows written.

    What was applied takes the place of queues.yaml (R128).
    """
    used = in_use(worker, queues)
    asyncio.run(move.refuse_if_running(worker))  # starting Spark first would take a while
    spark = open_session(f"{worker.application} move", master, job.SESSION_SETTINGS)
    with spark, brief_errors():
        return move.move_to_worker(spark, worker, used.queues, checkpoint)


def _take_rings(
    worker: WorkerConfig,
    settings: RingOptions,
    target: OutputTarget,
    *,
    has_begun: bool,
    has_state: bool,
) -> bool:
    """Make this job the only one that has the application's rings (ADR 53).

    It has planned a micro-batch (`has_begun`), and committed one (`has_state`). Returns whether it
    begins with what the worker's rings hold.
    """
    asyncio.run(move.refuse_if_running(worker))
    ends = asyncio.run(ownership.rings_owners(worker))
    begins_again = not has_state and ownership.began_from_worker(ends, target.query)
    if has_begun:
        _refuse_options_of_new_jobs(settings, begins_again=begins_again)
    from_worker = settings.from_worker or (begins_again and not settings.take_over)
    if not settings.take_over:
        ownership.refuse_other_owner(
            ends,
            worker.application,
            target.query,
            from_worker=from_worker,
            has_begun=has_begun,
            wrote_last=has_begun and asyncio.run(wrote_last(target)),
        )
    asyncio.run(claim_outputs(target, has_begun=has_begun))
    # One that has not begun may have been started with other options before.
    if not (has_begun and ownership.has_all(ends, target.query)):
        ownership.take_rings(worker, settings.checkpoint, target.query, from_worker=from_worker)
    return from_worker


def _initial_state(
    spark: SparkSession, worker: WorkerConfig, queues: QueuesConfig, *, has_begun: bool
) -> dict[str, Any]:
    """Arguments of `start_job` that make it begin with the worker's rings.

    Nobody has written to the changelog since the job has the rings, so the first micro-batch can be
    repeated. Spark has kept its offsets.
    """
    state = move.worker_state(spark, worker)
    if has_begun:
        return {"state": state}
    try:
        return {"state": state, "offsets": move.worker_offsets(state, worker, queues)}
    except move.CannotMove:
        ownership.release_rings(worker)
        raise


def _refuse_options_of_new_jobs(settings: RingOptions, *, begins_again: bool) -> None:
    """Raise `CannotMove` if a job that has begun is given an option of one that begins.

    One that repeats its first micro-batch may say again that it begins with the worker's rings.
    """
    if settings.take_over or (settings.from_worker and not begins_again):
        option = "--take-over" if settings.take_over else "--from-worker"
        raise move.CannotMove(
            f"{settings.checkpoint} belongs to a job that has already begun: omit {option} to "
            "continue it, or give a new folder"
        )


def _run_queries(
    spark: SparkSession,
    worker: WorkerConfig,
    used: InUse,
    settings: RingOptions,
    *,
    requested: Callable[[], bool],
) -> str:
    queues = used.queues
    wanted = CheckpointIdentity(
        application=worker.application,
        partitions=worker.partitions,
        tasks=min(settings.tasks, worker.partitions),
    )
    direct = job.direct_topics(worker, queues)
    repartitioned = [route.topic for route in job.repartitioned_routes(worker, queues)]
    identity = claim_checkpoint(spark, settings.checkpoint, wanted)
    check_topics_read(spark, settings.checkpoint, direct, repartitioned)
    begun = last_planned(spark, settings.checkpoint) >= 0
    has_state = last_committed(spark, settings.checkpoint) >= 0
    settings = settings._replace(tasks=identity.tasks)
    target = OutputTarget(
        worker=worker, query=identity.query, tasks=identity.tasks, inputs=frozenset(direct)
    )
    ids = read_topic_ids(spark, worker, settings.checkpoint)
    ids.check([*direct, *repartitioned], has_read=begun)
    from_worker = _take_rings(worker, settings, target, has_begun=begun, has_state=has_state)
    begin = _initial_state(spark, worker, queues, has_begun=begun) if from_worker else {}
    if not begun:
        forget_first_offsets(spark, settings.checkpoint)
    starts = record_start(spark, settings.checkpoint, worker, used, direct)
    if begun and is_finished(spark, settings.checkpoint):
        plan_empty_batch(spark, settings.checkpoint)
    ends = asyncio.run(log_ends(worker.client_options(), [*direct, *repartitioned]))
    start: Callable[[RingOptions], StreamingQuery] = partial(
        job.start_job, spark, worker, used, starts=starts, target=target, **begin
    )
    query = start(settings)
    monitor = JobMonitor(worker, repartitioned)
    with monitor.show():
        try:
            while not (requested() or query.awaitTermination(_POLL_S)):
                monitor.update(query.recentProgress)
                ids.watch()
                if settings.once and monitor.has_reached(ends):
                    break
        finally:
            _stop(spark, query)
        monitor.update(query.recentProgress)
        ids.check([*direct, *repartitioned])
        if settings.once and not requested():
            _finish(spark, settings, start)
    return monitor.summary()


def _stop(spark: SparkSession, query: StreamingQuery) -> None:
    """Stop a query between two micro-batches if there is a pause between them.

    Otherwise, the interrupted micro-batch is repeated by the next run.
    """
    deadline = time.monotonic() + _STOP_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    spark.sparkContext.setLogLevel("OFF")  # for interrupted tasks Spark logs pages of errors
    try:
        query.stop()
    finally:
        spark.sparkContext.setLogLevel("ERROR")


def _finish(
    spark: SparkSession, settings: RingOptions, start: Callable[[RingOptions], StreamingQuery]
) -> None:
    """Repeat the last micro-batch if it was interrupted, and begin no other one."""
    if is_finished(spark, settings.checkpoint):
        return
    query = start(settings._replace(trigger_ms=_LONG_MS))
    while not (is_finished(spark, settings.checkpoint) or query.awaitTermination(_POLL_S)):
        continue
    query.stop()
