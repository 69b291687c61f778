"""`ringfaust spark lake`: read the topics into the lake, once or continuously."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.kafka.admin import open_admin
from ringfaust.protocol.records import Role
from ringfaust.spark.errors import JobFailed, brief_errors
from ringfaust.spark.lake.catalog import check_schema, register
from ringfaust.spark.lake.store import LakeError
from ringfaust.spark.lake.stream import lake_session, read_topic_ids, start, streams
from ringfaust.spark.options import LakeOptions
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested
from ringfaust.spark.topic_ids import ReadTopicIds

_POLL_S = 1
_OTHER_DRIVER = ("CONCURRENT_STREAM_LOG_UPDATE", "ConcurrentTransactionException")
"""What Spark says if a batch was completed, and Delta if it was committed, by another driver."""
_READ_BY_WORKERS = (Role.CONTROL, Role.HOP)
"""And the producers' topics."""


def run(worker: WorkerConfig, queues: QueuesConfig, options: LakeOptions) -> None:
    """Read events, outputs and inputs into the lake, until SIGTERM or SIGINT unless `once`.

    Args:
        worker: names topics and brokers.
        queues: the routes, which name the producers' topics.
        options: of the command line.

    Raises:
        JobFailed: Spark ended the job with an error.
        LakeError: a topic is missing, or the lake belongs to another application or has lost its
            checkpoint.
        RecreatedTopic: a topic was deleted and created again since the lake has read it.
        BadSetting: `catalog` is not the name of a schema.
        BrokerUnreachable: no broker answers.
    """
    root = options.to
    if options.catalog is not None:
        check_schema(options.catalog)
    read = {*(route.topic for route in queues.routes), *map(worker.topic, _READ_BY_WORKERS)}
    parts = streams(root, worker, sorted(read) if options.inputs else ())
    topics = [topic for part in parts for topic in part.topics]
    asyncio.run(_check_topics(worker, root, topics))
    spark = open_session(f"{worker.application} lake", options.master)
    queries: list[StreamingQuery] = []
    try:
        with _other_drivers(root), brief_errors(), stop_requested() as requested:
            session = lake_session(spark, root, worker)
            ids = read_topic_ids(session, root, worker)
            ids.check(topics)
            if options.catalog is not None:
                register(session, root, options.catalog)
            queries += [start(session, root, worker, stream, once=options.once) for stream in parts]
            _await_all(queries, requested, ids)
            ids.check(topics)
    finally:
        for query in queries:
            query.stop()  # the next start repeats an unfinished batch
        spark.stop()


@contextmanager
def _other_drivers(root: str) -> Iterator[None]:
    """Say it plainly if another run of the command writes the lake.

    Raises:
        LakeError: one does.
    """
    try:
        yield
    except JobFailed as error:
        if any(sign in str(error) for sign in _OTHER_DRIVER):
            raise LakeError(
                root,
                "is being written by another run of this command, which has overtaken this one: "
                "run only one for each folder. Nothing was written twice",
            ) from error
        raise


async def _check_topics(worker: WorkerConfig, root: str, topics: list[str]) -> None:
    async with open_admin(worker.brokers()) as admin:
        existing = await admin.existing(topics)
    if missing := sorted(set(topics) - set(existing)):
        raise LakeError(
            root,
            f"has nothing to read: the brokers at {worker.bootstrap_servers} have no topic "
            f"{', '.join(missing)}; create it with `ringfaust topics create`",
        )


def _await_all(
    queries: list[StreamingQuery], requested: Callable[[], bool], ids: ReadTopicIds
) -> None:
    """Wait until all queries have ended or a stop is requested. Raises a failed query's error."""
    shown: dict[str, int] = {}
    while not requested() and any(
        [not query.awaitTermination(_POLL_S) for query in queries]  # noqa: C419
    ):
        ids.watch()
        for query in queries:
            progress = query.lastProgress
            if progress and sys.stderr.isatty() and shown.get(query.id) != progress["batchId"]:
                shown[query.id] = progress["batchId"]
                records = progress["numInputRows"]
                sys.stderr.write(
                    f"{query.name}: batch {progress['batchId']}, {records:,} records\n"
                )
