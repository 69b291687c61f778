"""Run the rings on Spark until told to stop."""

from __future__ import annotations

import asyncio
import signal
from types import FrameType
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.app.config import QueuesConfig, WorkerConfig
from ringfaust.app.topics import check_topics
from ringfaust.app.worker import WrongTopics
from ringfaust.spark.ring.job import JobSettings, session_settings, start_job, topics_at_home
from ringfaust.spark.ring.starts import note_start
from ringfaust.spark.session import open_session

_POLL_SECONDS = 1


def run(
    worker: WorkerConfig,
    queues: QueuesConfig,
    settings: JobSettings,
    *,
    once: bool,
    master: str | None,
) -> None:
    """Run until SIGTERM or SIGINT, or, `once`, until all that was there has been read.

    Raises:
        WrongTopics: it could not work with the topics that the brokers have.
        BrokerUnreachable: no broker answers.
    """
    problems = [p for p in asyncio.run(check_topics(worker, queues)) if p.severity == "error"]
    if problems:
        raise WrongTopics(problems)
    spark = open_session(f"{worker.application} rings", master, session_settings(worker, settings))
    client = {"bootstrap_servers": worker.bootstrap_servers, **worker.security.client_options()}
    starts = note_start(spark, settings.checkpoint, client, topics_at_home(worker, queues))
    query = start_job(spark, worker, queues, settings, starts)

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        _await_end(query, once)
    except KeyboardInterrupt:
        query.stop()
    finally:
        spark.stop()


def _await_end(query: StreamingQuery, once: bool) -> None:
    """Spark's own `availableNow` never ends a job that has timers."""
    while not query.awaitTermination(_POLL_SECONDS):
        x = query.lastProgress
        print(
            x
            and (
                x["batchId"],
                x["numInputRows"],
                x["durationMs"],
                [(o["customMetrics"], o["commitTimeMs"]) for o in x["stateOperators"]],
            )
        )
        progress: Any = query.lastProgress
        if once and progress and progress["numInputRows"] == 0:
            raise KeyboardInterrupt
