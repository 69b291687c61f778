"""`ringfaust spark lake`: read the topics into the lake, once or continuously."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from threading import Lock

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import BadSetting
from ringfaust.kafka.admin import existing_partitions
from ringfaust.protocol.records import Role
from ringfaust.spark.applied import in_use
from ringfaust.spark.errors import JobFailed, brief_errors
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lake import gold, silver
from ringfaust.spark.lake.monitor import LakeMonitor
from ringfaust.spark.lake.store import GOLD, LakeError, LakeProgress
from ringfaust.spark.lake.stream import lake_session, read_to, read_topic_ids, start, streams
from ringfaust.spark.lake.tables import TABLES, last_closing, path
from ringfaust.spark.lake.views import ENDED_ON, VIEWS, view
from ringfaust.spark.options import LakeOptions
from ringfaust.spark.session import open_session
from ringfaust.spark.stop import stop_requested

_SCHEMA_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_POLL_S = 1
_DAYS_S = 60.0
"""How often to see whether the clock closes a day."""
_REMEDIES = {
    "CONCURRENT_STREAM_LOG_UPDATE": "is being written by another run of this command, which has "
    "overtaken this one: run only one for each folder. Nothing was written twice",
    "ArithmeticException: long overflow": "cannot copy the producers' topics: a record has a "
    "timestamp that Spark cannot read, such as one in nanoseconds. Let its producer write ms, and "
    "give --no-inputs, or take the topic's route out",
}
"""What Spark says, and what a person can do. The first: another driver has completed a batch."""
_READ_BY_WORKERS = (Role.CONTROL, Role.HOP)
"""And the producers' topics."""


def run(worker: WorkerConfig, queues: QueuesConfig, options: LakeOptions) -> str:
    """Read events, outputs and inputs into the lake, until SIGTERM or SIGINT unless `once`.

    What was applied takes the place of queues.yaml (R128).

    It returns a sentence about what it did.

    Raises:
        JobFailed: Spark ended the job with an error.
        LakeError: a topic is missing, or the lake belongs to another application or has lost its
            checkpoint.
        RecreatedTopic: a topic was deleted and created again since the lake has read it.
        BadSetting: `catalog` is not the name of a schema.
        BrokerUnreachable: no broker answers.
        ConfigError: what was applied is not valid for this version.
        UnsupportedLevel: this version does not support the feature level in use (R129).
        MonitorCannotListen: the port for metrics is in use.
    """
    root = options.to
    if options.catalog is not None:
        check_schema(options.catalog)
    routes = in_use(worker, queues).queues.routes
    read = {*(route.topic for route in routes), *map(worker.topic, _READ_BY_WORKERS)}
    parts = streams(root, worker, sorted(read) if options.inputs else ())
    topics = [topic for part in parts for topic in part.topics]
    existing = {tp.topic for tp in asyncio.run(existing_partitions(worker.brokers(), topics))}
    if missing := sorted({*topics} - existing):
        raise LakeError(
            root,
            f"has nothing to read: the brokers at {worker.bootstrap_servers} have no topic "
            f"{', '.join(missing)}; create it with `ringfaust topics create`",
        )
    spark = open_session(f"{worker.application} lake", options.master, runs_python=False)
    queries: dict[str, StreamingQuery] = {}
    try:
        with brief_errors(), stop_requested() as requested:
            session = lake_session(spark, root, worker)
            ids = read_topic_ids(session, root, worker)
            ids.check(topics)
            if options.catalog is not None:
                register(session, root, options.catalog)
            monitor = LakeMonitor(
                worker,
                topics,
                read_to(session, root),
                options.metrics_port,
                queues if options.inputs else None,
            )
            days = _DayClock(session, root, options.catalog)
            for part in parts:
                pause = days.pause if part.name == silver.EVENTS_STREAM else None
                queries[part.name] = start(
                    session, root, worker, part, once=options.once, pause=pause
                )
            while not requested() and _run(list(queries.values())):
                ids.watch()
                monitor.update(queries)
                monitor.look()
                if not options.once and monitor.has_read(worker.topic(Role.EVENTS)):
                    days.close()
            if options.once and not requested():
                days.close(now=True)
            ids.check(topics)
            monitor.update(queries)
            monitor.look(now=True)
            return monitor.summary()
    except JobFailed as error:
        for said, remedy in _REMEDIES.items():
            if said in str(error):
                raise LakeError(root, remedy) from error
        raise
    finally:
        for query in queries.values():
            query.stop()  # the next start repeats an unfinished batch
        spark.stop()


def _run(queries: list[StreamingQuery]) -> bool:
    """Wait a moment; whether a query still runs. Raises a failed query's error."""
    return any([not query.awaitTermination(_POLL_S) for query in queries])  # noqa: C419


class _DayClock:
    """Closes days that are over although no line of a later day has come.

    The views in the catalog's schema, if there is one, follow.
    """

    def __init__(self, spark: SparkSession, root: str, schema: str | None) -> None:
        self._spark, self._root, self._schema = spark, root, schema
        self._next = 0.0
        self._note = ""
        self.pause = Lock()
        """A batch of the stream `events` holds it."""

    def close(self, *, now: bool = False) -> None:
        """Close the last day, if the stream has a pause. Looks once a minute, or `now`."""
        if time.monotonic() < self._next and not now:
            return
        if not self.pause.acquire(blocking=False):
            return
        try:
            self._next = time.monotonic() + _DAYS_S
            gold.close_by_clock(self._spark, self._root, datetime.now(UTC))
            note = LakeProgress(self._spark, self._root, GOLD).note
            if self._schema is not None and note != self._note:  # a day was closed
                register_views(self._spark, self._root, self._schema)
            self._note = note
        finally:
            self.pause.release()


def check_schema(name: str) -> None:
    """Raise BadSetting, before Spark starts, for neither SCHEMA nor CATALOG.SCHEMA."""
    if not re.fullmatch(rf"{_SCHEMA_NAME}(\.{_SCHEMA_NAME})?", name):
        raise BadSetting("catalog", name, "use SCHEMA or CATALOG.SCHEMA, such as main.rings")


def register(spark: SparkSession, root: str, schema: str) -> None:
    """Register all tables and views in a schema of Spark's catalog: Hive, Glue, Unity or another.

    The schema is created if necessary.

    Raises:
        LakeError: the schema has a table of that name at another place.
    """
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for table in TABLES:
        name, folder = f"{schema}.{table}", path(root, table)
        place = HadoopFolder(spark, folder).uri()
        quoted = place.replace("\\", "\\\\").replace("'", "\\'")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{quoted}'")
        found = DeltaTable.forName(spark, name).detail().select("location").collect()[0][0]
        if found.rstrip("/") != place:
            raise LakeError(
                root,
                f"cannot register {name}, which is the table at {found}: give another schema with "
                "--catalog, or drop that table",
            )
    register_views(spark, root, schema)


def register_views(spark: SparkSession, root: str, schema: str) -> None:
    """Register the views. They are right after later closings, too, and fastest if done again."""
    since = {}
    for table in ENDED_ON:
        # The query finds the last closing itself. The number as it is now lets it skip files.
        closed = f"(SELECT coalesce(max(batch), -1) FROM {schema}.{table})"
        since[table] = f"batch > {last_closing(spark, root, table)} AND batch > {closed}"
    for name in VIEWS:
        query = view(name, lambda table: f"{schema}.{table}", since)
        spark.sql(f"CREATE OR REPLACE VIEW {schema}.{name} AS {query}")
