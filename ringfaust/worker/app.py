"""The worker: a Faust app whose consumer hands each batch to the task of its partition."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import AsyncExitStack, suppress
from functools import partial
from logging.config import dictConfig
from pathlib import Path
from typing import Any

import faust
from aiokafka.errors import KafkaError
from faust.auth import OAuthCredentials
from faust.types import TP
from rocksdict import Cache

from ringfaust import __version__, compiled
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.agreement import fingerprint
from ringfaust.config.applied import InUse, checked_configuration
from ringfaust.config.topics import WrongTopics, declarations
from ringfaust.core import levels
from ringfaust.core.catalog import Configuration
from ringfaust.core.state import State
from ringfaust.event_loop import new_event_loop
from ringfaust.kafka.broker_time import clock_skew_ms
from ringfaust.kafka.changelog_owner import changelog_ends
from ringfaust.kafka.names import worker_group, worker_protocol
from ringfaust.kafka.offsets import CommittedOffset, group_offsets_again
from ringfaust.kafka.shared_clients import SharedClients, shared_clients
from ringfaust.kafka.sign_topic import SignTopic
from ringfaust.kafka.status_topic import StatusTopic
from ringfaust.kafka.topic_ids import TopicIds, topic_ids_again
from ringfaust.kafka.transactions import TransactionalProducer
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore
from ringfaust.protocol.records import Role
from ringfaust.protocol.route_changes import feeds_of
from ringfaust.supervisor import on_end_of_input
from ringfaust.times import wall_ms
from ringfaust.transactional.configuration_topic import configuration_log
from ringfaust.worker.assignment import Assignment
from ringfaust.worker.clock import CheckedClock, ClockSkewed, SystemClock
from ringfaust.worker.context import TaskSettings, WorkerContext
from ringfaust.worker.failover import Failover, LoopWatch
from ringfaust.worker.faust.group import check_group, leave_group, remove_from_group
from ringfaust.worker.faust.membership import Background
from ringfaust.worker.faust.transport import BatchApp
from ringfaust.worker.interfaces import Bounds, WorkerClock
from ringfaust.worker.logs import logging_config
from ringfaust.worker.observe.health import LOST_AFTER_S, Health
from ringfaust.worker.observe.memory import MemoryBudget
from ringfaust.worker.observe.metrics import WorkerMetrics
from ringfaust.worker.observe.numbers import Numbers
from ringfaust.worker.observe.status import StatusPublisher
from ringfaust.worker.observe.web import AttachPages, check_address, served, web_app
from ringfaust.worker.partition.commit_slot import BackgroundCommit
from ringfaust.worker.partition.hearing import LogEnds
from ringfaust.worker.partition.input_buffer import FETCH_RECORDS
from ringfaust.worker.partition.input_positions import read_bounds
from ringfaust.worker.partition.orders import open_orders
from ringfaust.worker.partition.work import PartitionWork
from ringfaust.worker.store.changelog import OwnedByJob, changelog_consumer, standby_consumer
from ringfaust.worker.store.data_dir import locked_data_dir, worker_identity
from ringfaust.worker.store.moved import refuse_moved_state
from ringfaust.worker.store.rocks import open_rocks_store

log = logging.getLogger(__name__)

_OUR_ROLES = (
    Role.CONTROL, Role.HOP, Role.DISPATCHED, Role.EVICTED, Role.DEAD, Role.EVENTS, Role.REPLIES,
    Role.CHANGELOG, Role.STATUS,
)  # fmt: skip
_GC_THRESHOLDS = (500_000, 10, 100)
"""Reference counting frees nearly all garbage. With the default thresholds the collector scans the
decoded rings a hundred times a second and finds nothing. A batch of many rings makes 100,000
objects, which live until it is committed; to scan so many takes up to 50 ms."""
_METADATA_MAX_AGE_MS = 5_000
"""How soon the workers notice that a topic was deleted or created."""
_HEARTBEAT_S = 0.3
"""How soon a member learns that the group is rebalanced."""
_FETCH_BYTES = 4 * 1024 * 1024


def create_app(
    worker: WorkerConfig,
    used: InUse,
    attach: AttachPages | None = None,
    *,
    socket_path: Path | None = None,
    is_clock_checked: bool = False,
) -> BatchApp:
    """The Faust app of one worker.

    Args:
        worker: worker.yaml.
        used: the configuration in use, and the feature level.
        attach: adds pages to those of the worker.
        socket_path: where a worker that is supervised serves its pages.
        is_clock_checked: the clock has just been found right.
    """
    identity = worker_identity(worker.data_dir)
    app = BatchApp(
        worker.application,
        protocol=worker_protocol(fingerprint(worker, used.first)),
        broker=[f"kafka://{server}" for server in worker.bootstrap_servers.split(",")],
        broker_max_poll_records=min(worker.batch_records, FETCH_RECORDS),
        broker_credentials=_credentials(worker),
        consumer_metadata_max_age_ms=_METADATA_MAX_AGE_MS,
        consumer_group_instance_id=identity,
        broker_heartbeat_interval=_HEARTBEAT_S,
        broker_session_timeout=worker.session_timeout_ms / 1000,
        broker_request_timeout=max(40.0, worker.session_timeout_ms / 1000 + 10),
        consumer_max_fetch_size=_FETCH_BYTES,
        datadir=str(worker.data_dir),
    )
    topics = {str(role): worker.topic(role) for role in _OUR_ROLES}
    processor_config = ProcessorConfig(
        control_topic=topics[Role.CONTROL],
        repartition_topic=topics[Role.HOP],
        routes=used.first.split_routes(worker.partitions)[0],
        max_record_bytes=worker.max_record_bytes,
        log_is_clock=worker.clock == "log",
        cloud_events_of=worker.application if worker.cloud_events else "",
        partitions=worker.partitions,
        configuration=Configuration(0, used.first.document(), "the workers' queues.yaml"),
        newest=used.newest,
    )
    clock = _clock(worker, is_checked=is_clock_checked)
    log_ends = LogEnds(topics[Role.CONTROL], worker.client_options(), clock)

    clients = shared_clients(worker.client_options())

    context = _context(
        worker, topics, processor_config, used.first, app, identity=identity, clock=clock,
        log_ends=log_ends, level=used.level, clients=clients, assignment=lambda: assignment,
    )  # fmt: skip
    feeds = feeds_of(used.queues.document(), worker.partitions)
    assignment = Assignment(context, feeds, used.revision)
    app.listener = app.holdings = assignment
    loop_watch = LoopWatch()
    background = [_signs_of_life(worker, app, identity, loop_watch)]
    if isinstance(clock, CheckedClock):
        background += [log_ends.run, lambda _: clock.watch()]
    app.background = background
    memory = MemoryBudget(worker.memory_bytes)
    app.held_back = partial(_held_back, memory, topics[Role.CONTROL])
    health = Health(
        lambda: assignment.tasks,
        context.replaying,
        log_ends.silent_s,
        lambda: app.reader.unconfirmed_s() if assignment.has_joined else 0.0,
        memory,
        has_joined=lambda: assignment.has_joined,
        late_standbys=lambda: assignment.standbys.late,
        unreadable=lambda: app.reader.unreadable(LOST_AFTER_S) if assignment.has_joined else (),
    )
    app.beside = partial(
        _beside, worker, app, assignment, health, clock,
        clients=clients, loop_watch=loop_watch, attach=attach, socket_path=socket_path,
    )  # fmt: skip
    return app


def _held_back(memory: MemoryBudget, control_topic: str, tps: Set[TP]) -> Set[TP]:
    """What is not read while the process has too much memory: all but the commands (R121).

    Acks are commands, and make room.
    """
    return set() if memory.admits() else {tp for tp in tps if tp.topic != control_topic}


async def _beside(
    worker: WorkerConfig,
    app: BatchApp,
    assignment: Assignment,
    health: Health,
    clock: WorkerClock,
    *,
    clients: SharedClients,
    loop_watch: LoopWatch,
    attach: AttachPages | None,
    socket_path: Path | None,
) -> None:
    """What runs beside the partitions: the log of the worker's health, its status, and pages."""

    def works() -> list[PartitionWork]:
        tasks = [task for task in assignment.tasks if not task.trouble]
        return [task.work for task in tasks if isinstance(task.work, PartitionWork)]

    numbers = Numbers(health, works, app.reader.log_end, lambda: assignment.standbys.behind)
    info = {"version": __version__, "engine": compiled.KIND}
    host = socket.gethostname()
    status = StatusPublisher(
        StatusTopic(worker.client_options(), worker.topic(Role.STATUS), worker.partitions),
        f"{host[:64]}-{os.getpid()}-{uuid.uuid4().hex[:4]}",
        info | {"host": host, "started_ms": wall_ms(), "levels": [levels.OLDEST, levels.NEWEST]},
        partitions=worker.partitions,
        numbers=numbers,
        clock_skew_ms=lambda: clock.skew_ms if isinstance(clock, CheckedClock) else None,
    )
    running = [
        health.memory.watch(), health.watch(), numbers.count(status.part), status.run(),
        loop_watch.run(),
    ]  # fmt: skip
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(clients)
        if socket_path is not None:
            await on_end_of_input(lambda: os.kill(os.getpid(), signal.SIGTERM))
        if worker.web.enabled:
            info["application"] = worker.application
            pages = web_app(health, WorkerMetrics(numbers, info), worker.web)
            if attach is not None:
                attach(pages)
            where = (worker.web.bind, worker.web.port, socket_path)
            await opened.enter_async_context(served(pages, *where))
        await asyncio.gather(*running)


def _clock(worker: WorkerConfig, *, is_checked: bool) -> WorkerClock:
    if worker.clock == "log":
        return SystemClock()
    return CheckedClock(
        worker.clock_skew_max_ms, partial(_clock_skew_ms, worker), is_checked=is_checked
    )


def _signs_of_life(
    worker: WorkerConfig, app: BatchApp, identity: str, loop_watch: LoopWatch
) -> Background:
    """Signs of life, with Kafka clients of their own: these belong to one event loop (R126)."""
    client = worker.client_options()
    clients, group = shared_clients(client), worker_group(worker.application)
    failover = Failover(
        SignTopic(client, worker.topic(Role.STATUS)),
        identity,
        worker.failover_after_ms,
        lambda other: remove_from_group(clients, group, other, app.reader.rejoin),
        loop_watch.is_hung,
    )

    async def give_signs(_: object) -> None:
        async with clients:
            await failover.run()

    return give_signs


def _context(
    worker: WorkerConfig,
    topics: Mapping[str, str],
    processor_config: ProcessorConfig,
    first: QueuesConfig,
    app: BatchApp,
    *,
    identity: str,
    clock: WorkerClock,
    log_ends: LogEnds,
    level: int,
    clients: SharedClients,
    assignment: Callable[[], Assignment],
) -> WorkerContext:
    """What the tasks share: settings, and Kafka, RocksDB and the clock of a real worker."""
    client, catalog = worker.client_options(), first.catalog()
    decoded_bytes = worker.cache_bytes // 2
    block_cache = Cache(worker.cache_bytes - decoded_bytes)

    async def newest() -> Configuration | None:
        found = (await configuration_log(client, worker.topic(Role.CONFIGURATION))).revisions
        return found[-1] if found else None

    async def ids(names: Collection[str]) -> TopicIds:
        return await clients.ask(lambda each: topic_ids_again(each.admin, names))

    async def bounds(tps: Iterable[TP]) -> Mapping[TP, Bounds]:
        wanted = [*tps]
        return await clients.ask(lambda each: read_bounds(each.consumer, ids, wanted))

    async def committed(tps: Iterable[TP]) -> Mapping[TP, CommittedOffset]:
        group, wanted = worker_group(worker.application), [*tps]
        offsets = await clients.ask(lambda each: group_offsets_again(each.admin, group, wanted))
        return {TP(*tp): found for tp, found in offsets.items()}

    return WorkerContext(
        application=worker.application,
        partitions=worker.partitions,
        topics=topics,
        data_dir=worker.data_dir,
        cache_bytes=lambda: decoded_bytes // max(len(assignment().tasks), 1),
        tick_ms=worker.tick_ms,
        feeds=feeds_of(first.document(), worker.partitions),
        clock_skew_max_ms=worker.clock_skew_max_ms,
        stops_at_gaps=worker.on_gap == "stop",
        tombstone_ms=declarations()[Role.CHANGELOG].tombstone_retention_ms or 0,
        processor_config=processor_config,
        task_settings=TaskSettings(batch_records=worker.batch_records),
        clock=clock,
        open_store=lambda path: open_rocks_store(path, block_cache),
        open_producer=lambda number, transactional_id: TransactionalProducer(
            worker.application, number, topics, client, transactional_id
        ),
        open_changelog=lambda: changelog_consumer(client),
        open_standby_log=lambda: standby_consumer(client),
        new_processor=lambda store, positions, new_batches: Processor(
            processor_config, State(ByteStore(store), catalog), positions, new_batches
        ),
        new_commit_slot=BackgroundCommit,
        group_offsets=committed,
        read_bounds=bounds,
        topic_ids=ids,
        leave_group=lambda: leave_group(worker, identity),
        log_end=log_ends.end,
        level=level,
        takes_standbys=worker.standby > 0,
        is_metered=True,
        reader=lambda: app.reader,
        open_orders=lambda number: open_orders(
            number, topics[Role.CONTROL], topics[Role.REPLIES], worker.partitions, client
        ),
        crash=lambda error: app.add_future(app.crash(error)),
        took_up=lambda *newer: assignment().use_routes(*newer),
        newest_configuration=newest,
    )


def _check_clock(worker: WorkerConfig) -> bool:
    """Refuse to start with a clock that is wrong (R115).

    Returns:
        Whether it was checked. If not, the running worker does that.

    Raises:
        ClockSkewed: it does not agree with the brokers'.
    """
    with suppress(KafkaError, OSError):
        skew_ms = asyncio.run(_clock_skew_ms(worker))
        if abs(skew_ms) > worker.clock_skew_max_ms:
            raise ClockSkewed(skew_ms, worker.clock_skew_max_ms)
        return True
    return False


async def _clock_skew_ms(worker: WorkerConfig) -> int:
    """By how much this machine's clock is ahead of the brokers' (R115)."""
    me = f"{socket.gethostname()}/{os.getpid()}"
    return await clock_skew_ms(worker.client_options(), worker.application, me)


def _credentials(worker: WorkerConfig) -> Any:
    """The security settings as Faust's credentials; None for plain text."""
    options: Mapping[str, Any] = worker.security.client_options()
    context = options.get("ssl_context")
    if "sasl_oauth_token_provider" in options:
        provider = options["sasl_oauth_token_provider"]
        return OAuthCredentials(oauth_cb=provider, ssl_context=context)
    if "sasl_mechanism" in options:
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return faust.SSLCredentials(context=context) if context is not None else None


def run(
    worker: WorkerConfig,
    queues: QueuesConfig,
    attach: AttachPages | None = None,
    socket_path: Path | None = None,
) -> None:
    """Run a worker until SIGTERM or SIGINT.

    Args:
        worker: worker.yaml.
        queues: queues.yaml; what was applied takes its place (R128).
        attach: adds pages to those of the worker.
        socket_path: it is one of several processes, serves its pages there, and also stops when
            its standard input ends.

    Raises:
        BadDataDir: the data directory cannot be created or written.
        DataDirInUse: another worker uses the data directory.
        CannotListen: see `check_address`.
        WrongTopics: the worker cannot use the topics that the brokers have.
        DifferentSettings: workers with other settings are running (R113).
        ClockSkewed: the clock does not agree with the brokers'.
        BrokerUnreachable: no broker answers.
        ConfigError: what was applied is not valid for this version.
        OwnedByJob: a ring job has the rings.
        UnsupportedLevel: this version does not support the feature level in use (R129).
    """
    with locked_data_dir(worker.data_dir):
        if worker.web.enabled and socket_path is None:
            asyncio.run(check_address(worker.web.bind, worker.web.port))
        used, problems = asyncio.run(checked_configuration(worker, queues))
        queues, first = used.queues, used.first
        if errors := [each for each in problems if each.severity == "error"]:
            raise WrongTopics(errors)
        asyncio.run(_check_others(worker, queues, fingerprint(worker, first)))
        is_clock_checked = worker.clock == "wall" and _check_clock(worker)
        # Not before: a worker that refuses to start prints its reason, and no log of the client's.
        tag = "" if socket_path is None else socket_path.name
        log_config = logging_config(worker.log_level, worker.log_format, tag)
        dictConfig(log_config)
        log_start(worker)
        if used.note:
            log.warning("%s", used.note)
        for problem in problems:
            if problem.what == "cleanup":  # the only trace of gaps that compaction leaves (R112)
                log.warning("%s", problem)
        app = create_app(
            worker, used, attach, socket_path=socket_path, is_clock_checked=is_clock_checked
        )
        _run_faust(app, log_config)


async def _check_others(worker: WorkerConfig, queues: QueuesConfig, mine: str) -> None:
    """Refuse to run beside workers with other settings, or on the state of others (ADR 53)."""
    if queues.split_routes(worker.partitions)[1]:  # their tasks do not look at the rings
        changelog = worker.topic(Role.CHANGELOG)
        for end in await changelog_ends(worker.client_options(), changelog, worker.partitions):
            if end.job:
                raise OwnedByJob(worker.application, end.job)
    await asyncio.gather(check_group(worker, mine), refuse_moved_state(worker, queues))


def log_start(worker: WorkerConfig) -> None:
    """Log what starts here, and what would make it faster."""
    log.info(
        "ringfaust %s (%s): brokers %s, application %s, data directory %s, partitions %d",
        __version__, compiled.KIND, worker.bootstrap_servers, worker.application,
        worker.data_dir, worker.partitions,
    )  # fmt: skip
    if compiled.REMEDY:
        log.warning("%s: %s", compiled.KIND, compiled.REMEDY)


def _run_faust(app: BatchApp, log_config: dict[str, Any]) -> None:
    """Run Faust until it is stopped. Exits with its status."""
    gc.set_threshold(*_GC_THRESHOLDS)
    process = faust.Worker(
        app, quiet=True, loglevel="WARNING", redirect_stdouts=False, logging_config=log_config,
        loop=new_event_loop(),
    )  # fmt: skip
    process.spinner = None
    process.execute_from_commandline()
