"""The worker: a Faust app whose one agent iterates over batches and hands them to their owner."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import faust
from faust.types import StreamT
from rocksdict import Cache

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.topics import WrongTopics, check_topics, declarations
from ringfaust.processor.processor import ProcessorConfig
from ringfaust.protocol.records import Role
from ringfaust.worker.assignment import Assignment
from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.context import WorkerContext
from ringfaust.worker.logs import logging_config
from ringfaust.worker.transport import BatchApp

_OUR_ROLES = (
    Role.CONTROL, Role.HOP, Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES,
    Role.CHANGELOG,
)  # fmt: skip
_GC_THRESHOLDS = (100_000, 50, 100)
"""Most garbage of the hot path is freed by reference counts; the default looks through the decoded
rings a hundred times a second and finds nothing."""


def create_app(worker: WorkerConfig, queues: QueuesConfig) -> BatchApp:
    """The Faust app of one worker."""
    topics = {str(role): worker.topic(role) for role in _OUR_ROLES}
    direct, hopping = queues.split_routes(worker.partitions)
    app = BatchApp(
        worker.application,
        broker=[f"kafka://{server}" for server in worker.bootstrap_servers.split(",")],
        broker_max_poll_records=worker.batch_records,
        broker_credentials=_credentials(worker),
        broker_session_timeout=worker.session_timeout_ms / 1000,
        broker_request_timeout=max(40.0, worker.session_timeout_ms / 1000 + 10),
        consumer_max_fetch_size=_FETCH_BYTES,
        datadir=str(worker.data_dir),
        web_enabled=worker.web.enabled,
        web_bind=worker.web.bind,
        web_port=worker.web.port,
    )
    cache_part = worker.cache_bytes // 2
    shared = WorkerContext(
        application=worker.application,
        partitions=worker.partitions,
        topics=topics,
        client=worker.client_options(),
        data_dir=worker.data_dir,
        cache=Cache(cache_part),
        cache_bytes=cache_part // worker.partitions,
        batch_records=worker.batch_records,
        tick_ms=worker.tick_ms,
        tombstone_ms=declarations()[Role.CHANGELOG].tombstone_retention_ms or 0,
        fenced_wait_s=worker.session_timeout_ms / 1000,
        processor_config=ProcessorConfig(
            control_topic=topics["control"],
            hop_topic=topics["hop"],
            routes=direct,
            max_record_bytes=worker.max_record_bytes,
            log_is_clock=worker.clock == "log",
        ),
        catalog=queues.catalog(),
        reader=lambda: app.reader,
        crash=lambda error: app.add_future(app.crash(error)),
    )
    owner = Assignment(shared, hopping)
    app.host = owner

    @app.agent(app.topic(*sorted(owner.topics)), name="ringfaust")  # type: ignore[untyped-decorator]
    async def ring(batches: StreamT[Batch]) -> None:
        async for batch in batches:
            owner.offer(batch)

    return app


_FETCH_BYTES = 4 * 1024 * 1024


def _credentials(worker: WorkerConfig) -> Any:
    """The security settings in Faust's words; None for plain text."""
    options = worker.security.client_options()
    context = options.get("ssl_context")
    if "sasl_mechanism" in options:
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return faust.SSLCredentials(context=context) if context is not None else None


def run(worker: WorkerConfig, queues: QueuesConfig) -> None:
    """Run a worker until it is told to stop (SIGTERM, SIGINT).

    Raises:
        WrongTopics: it could not work with the topics that the brokers have.
        BrokerUnreachable: no broker answers.
    """
    problems = [p for p in asyncio.run(check_topics(worker, queues)) if p.severity == "error"]
    if problems:
        raise WrongTopics(problems)
    gc.set_threshold(*_GC_THRESHOLDS)
    worker.data_dir.mkdir(parents=True, exist_ok=True)
    process = faust.Worker(
        create_app(worker, queues),
        quiet=True,
        loglevel="WARNING",
        redirect_stdouts=False,
        logging_config=logging_config(worker.log_level),
    )
    process.spinner = None
    process.execute_from_commandline()
