"""Run the rings on Spark until told to stop; and move them to a worker."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.topics import WrongTopics, check_topics
from ringfaust.errors import RingfaustError
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.ring import move
from ringfaust.spark.ring.job import STATE, JobSettings, hopping_routes, start_job, topics_at_home
from ringfaust.spark.ring.starts import Identity, log_ends, note_start, numbers_in, settle_identity
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested

_LEAST_SPARK = (4, 0, 2)
_POLL_SECONDS = 1
_STOP_SECONDS = 60


class OldSpark(RingfaustError):
    """The rings' state would not come whole to this Spark.

    Attributes:
        version: the cluster's or the installed one.
    """

    def __init__(self, version: str) -> None:
        least = ".".join(map(str, _LEAST_SPARK))
        super().__init__(
            f"Spark {version} may read but a part of a large piece of state, and end the job "
            f"(SPARK-53870): run the rings on {least} or newer"
        )
        self.version = version


def refuse_old_spark(version: str) -> None:
    """Only a Spark that reads all of what a job writes to its state will do.

    Raises:
        OldSpark: this one does not.
    """
    if tuple(int(number) for number in re.findall(r"\d+", version)[:3]) < _LEAST_SPARK:
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
    """Run until SIGTERM or SIGINT, or, `once`, until all that was there has been read.

    Args:
        worker: names brokers and topics.
        queues: routes and queues.
        settings: of the job.
        once: end at the end of the topics.
        from_worker: begin with what the worker's rings hold.
        master: as of spark-submit.

    Raises:
        WrongTopics: it could not work with the topics that the brokers have.
        BrokerUnreachable: no broker answers.
        CannotMove: the worker's rings cannot be taken over now.
        OldSpark: this Spark cannot keep the state.
        JobFailed: it ended by an error.
    """
    problems = [p for p in asyncio.run(check_topics(worker, queues)) if p.severity == "error"]
    if problems:
        raise WrongTopics(problems)
    if from_worker:
        asyncio.run(move.refuse_if_running(worker))  # before Spark's start, which takes a while
    spark = open_session(f"{worker.application} rings", master, STATE)
    refuse_old_spark(spark.version)
    client = worker.client_options()
    with brief_errors(), stop_requested() as asked:
        begin: dict[str, Any] = {}
        if from_worker:
            if numbers_in(spark, settings.checkpoint, "offsets"):
                raise move.CannotMove(
                    f"{settings.checkpoint} is of a job that has already begun: leave out "
                    "--from-worker to go on with it, or give a new folder"
                )
            begin["state"] = move.worker_state(spark, worker)
            begin["offsets"] = move.worker_offsets(begin["state"], worker, queues)
        wanted = Identity(
            application=worker.application,
            partitions=worker.partitions,
            tasks=min(settings.tasks, worker.partitions),
        )
        job = settle_identity(spark, settings.checkpoint, wanted)
        settings = replace(settings, tasks=job.tasks)
        at_home = topics_at_home(worker, queues)
        inputs = [*at_home, *(route.topic for route in hopping_routes(worker, queues))]
        starts = note_start(spark, settings.checkpoint, client, at_home)
        ends = asyncio.run(log_ends(client, inputs)) if once else None
        goes_on = True
        while goes_on:
            query = start_job(spark, worker, queues, settings, starts, **begin)
            is_done = _await_end(query, ends, asked)
            goes_on = is_done and not move.is_finished(spark, settings.checkpoint)
            begin = {}  # the checkpoint knows
    spark.stop()


def run_move_to_worker(
    worker: WorkerConfig, queues: QueuesConfig, checkpoint: str, master: str | None
) -> int:
    """Give the state of a job that has stopped to the worker; the number of rows.

    Raises:
        CannotMove: it cannot be done now.
        JobFailed: the checkpoint cannot be read.
    """
    asyncio.run(move.refuse_if_running(worker))  # before Spark's start, which takes a while
    spark = open_session(f"{worker.application} move", master, STATE)
    with brief_errors():
        rows = move.move_to_worker(spark, worker, queues, checkpoint)
    spark.stop()
    return rows


def _await_end(
    query: StreamingQuery,
    ends: Mapping[str, Mapping[int, int]] | None,
    asked: Callable[[], bool],
) -> bool:
    """Until it fails, a stop is asked for or, with `ends`, has done all before these offsets: True.

    Spark's own `availableNow` never ends a job that has timers. They may also begin a batch just
    when the query is stopped: then it has to be done by another start.
    """
    is_done = False
    while not (is_done or asked() or query.awaitTermination(_POLL_SECONDS)):
        is_done = ends is not None and _is_past(query.lastProgress, ends)
    _stop_between_batches(query)
    return is_done


def _is_past(
    progress: StreamingQueryProgress | None, ends: Mapping[str, Mapping[int, int]]
) -> bool:
    """Has the last batch, or one before it, read up to these offsets?"""
    read: dict[str, dict[str, int]] = {}
    # Its fields give the offsets as text, of JSON or of Python by version.
    for source in json.loads(progress.json)["sources"] if progress else ():
        read |= source["endOffset"] or {}
    return all(
        read.get(topic, {}).get(str(partition), 0) >= end
        for topic, of in ends.items()
        for partition, end in of.items()
    )


def _stop_between_batches(query: StreamingQuery) -> None:
    """A batch that is cut off has to be done again, and its output would come twice.

    Spark's own `stop` cuts it off, and where one batch follows the other without a pause, nobody
    could see the moment between two. So we set what lets a query end when its batch is done, or
    before its work begins, or with its next trigger; Spark does so itself where it ends one.
    """
    running: Any = query._jsq.streamingQuery()  # noqa: SLF001
    state = running.state()
    kind = state.get().getClass()  # of another state: they live where a version puts them
    terminated = kind.getClassLoader().loadClass(f"{kind.getPackageName()}.TERMINATED$")
    state.set(terminated.getField("MODULE$").get(None))
    deadline = time.monotonic() + _STOP_SECONDS
    while running.queryExecutionThread().isAlive() and time.monotonic() < deadline:
        running.queryExecutionThread().join(_POLL_SECONDS * 1000)
        if not query.status["isTriggerActive"]:
            break  # it waits for a trigger that is far off
    query.stop()
