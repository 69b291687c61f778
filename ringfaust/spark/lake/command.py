"""Bring the topics into the lake: all that is there, or on and on until told to stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import WorkerConfig
from ringfaust.kafka.admin import open_admin
from ringfaust.spark.errors import brief_errors
from ringfaust.spark.lake.store import LakeError
from ringfaust.spark.lake.stream import lake_session, start, streams
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested

_POLL_SECONDS = 1


def run(worker: WorkerConfig, root: str, *, once: bool, master: str | None) -> None:
    """Read events and outputs into the lake.

    Args:
        worker: names topics and brokers.
        root: the lake's folder or URI; made if it is not there.
        once: end when all has been read that is there now; else at SIGTERM or SIGINT.
        master: as Spark's --master.

    Raises:
        JobFailed: Spark ended it by an error.
        LakeError: topics are missing, or the lake cannot go on as it is.
        BrokerUnreachable: no broker answers.
    """
    both = streams(root, worker)
    asyncio.run(_check_topics(worker, root, [topic for stream in both for topic in stream.topics]))
    spark = open_session(f"{worker.application} lake", master)
    queries: list[StreamingQuery] = []
    try:
        with brief_errors(), stop_requested() as asked:
            session = lake_session(spark, root, worker)
            queries += [start(session, root, worker, stream, once=once) for stream in both]
            _await_all(queries, asked)
    finally:
        for query in queries:
            query.stop()  # what was begun is done again by the next start
        spark.stop()


async def _check_topics(worker: WorkerConfig, root: str, topics: list[str]) -> None:
    async with open_admin(worker.brokers()) as admin:
        existing = await admin.existing(topics)
    if missing := sorted(set(topics) - set(existing)):
        raise LakeError(
            root,
            f"has nothing to read: the brokers at {worker.bootstrap_servers} have no topic "
            f"{', '.join(missing)}; `ringfaust topics create` makes them",
        )


def _await_all(queries: list[StreamingQuery], asked: Callable[[], bool]) -> None:
    """Until all have ended, or a stop was asked for, or one has failed, which is raised here."""
    shown: dict[str, int] = {}
    while not asked() and any(
        [not query.awaitTermination(_POLL_SECONDS) for query in queries]  # noqa: C419
    ):
        for query in queries:
            progress = query.lastProgress
            if progress and sys.stderr.isatty() and shown.get(query.id) != progress["batchId"]:
                shown[query.id] = progress["batchId"]
                records = progress["numInputRows"]
                sys.stderr.write(
                    f"{query.name}: batch {progress['batchId']}, {records:,} records\n"
                )
