"""One run of the demo: topics, worker, consumers, flights, and the proof of the accounts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from ringfaust.config import WorkerConfig, load
from ringfaust.config.topics import create_topics
from ringfaust.demo.consumers import (
    ClosingConsumer,
    DemoConsumer,
    EvictedReader,
    MixedConsumer,
    attach_all,
)
from ringfaust.demo.control_client import ControlClient
from ringfaust.demo.dashboard import RING_SIZE, Dashboard, DemoState
from ringfaust.demo.flights import ProducerRecord, extra_records, replay
from ringfaust.demo.report import DemoResult
from ringfaust.demo.task_scope import StartTask, task_scope
from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import worker_group
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import Role
from ringfaust.testing.accounts.proof import Proof
from ringfaust.testing.accounts.prove import prove
from ringfaust.testing.process import WorkerProcess

PARTITIONS = 4
QUIET_CARRIER = "OO"
"""SkyWest, which left New York 32 times that year, so its ring never fills."""

_POLL_SECONDS = 0.25
_COUNTS_SECONDS = 0.5
_STUCK_SECONDS = 60.0
_MOST_LISTED = 10_000
_BATCH_BYTES = 400_000


class Stuck(RingfaustError):
    """The demo made no progress for 60 seconds. The text says what it waited for."""

    def __init__(self, what: str) -> None:
        super().__init__(f"The demo waited {_STUCK_SECONDS:.0f} s without progress until {what}.")


def write_config(folder: Path, application: str, servers: str, topic: str) -> None:
    """Write queues.yaml and worker.yaml as a user would, for flights in `topic`."""
    queues = {
        "routes": [{"topic": topic, "queue": "departures.{key}"}],
        "queues": {"departures.*": {"ring_size": RING_SIZE}},
    }
    worker = {
        "application": application,
        "bootstrap_servers": servers,
        "partitions": PARTITIONS,
        "data_dir": str(folder / "data"),
    }
    (folder / "queues.yaml").write_text(yaml.safe_dump(queues), "utf-8")
    (folder / "worker.yaml").write_text(yaml.safe_dump(worker), "utf-8")


@asynccontextmanager
async def running_worker(
    folder: Path, log: Path, dashboard: Dashboard
) -> AsyncIterator[tuple[StartTask, AIOKafkaProducer, ControlClient]]:
    """Run a worker for the block, and show how far it is; all tasks end with the block.

    Args:
        folder: has the configuration; the topics exist.
        log: file for the worker's log.
        dashboard: shows the state, which the evicted records are counted in.

    Raises:
        WorkerFailed: the worker has ended.
        KafkaError: the brokers stopped answering.
    """
    config, _ = load(folder)
    servers, application = config.bootstrap_servers, config.application
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, max_batch_size=_BATCH_BYTES
    )
    worker = WorkerProcess(folder, log)
    worker.start()
    try:
        async with producer, task_scope() as start:
            control = ControlClient(servers, application, producer)
            reader = EvictedReader(servers, application)
            dashboard.state.evicted = reader.by_queue
            for work in (watch_worker(worker), dashboard.show(), control.read(), reader.read()):
                start(work)
            yield start, producer, control
    finally:
        worker.stop()


class FlightsRun:
    """One run of the demo on running brokers.

    Args:
        folder: has the configuration, and gets all temporary files.
        flights: the flights, which may still be loading.
        dashboard: shows the state, which is updated as the demo proceeds.
    """

    def __init__(
        self, folder: Path, flights: Future[list[ProducerRecord]], dashboard: Dashboard
    ) -> None:
        self._folder = folder
        self._flights = flights
        self._config, self._queues = load(folder)
        self._topic = self._queues.routes[0].topic
        self._state = dashboard.state
        self._dashboard = dashboard

    async def run(self, *, given_brokers: bool) -> DemoResult:
        """Run the demo from the creation of the topics to the proof.

        Args:
            given_brokers: whether the brokers are the user's.

        Raises:
            RingfaustError: the demo could not complete; the text says why.
            KafkaError: the brokers stopped answering.
        """
        self._dashboard.say("creating topics and starting a worker")
        await create_topics(self._config, self._queues)
        log = self._folder / "worker.log"
        async with running_worker(self._folder, log, self._dashboard) as (start, producer, control):
            return await self._run_steps(start, producer, control, given_brokers)

    async def _run_steps(
        self, start: StartTask, producer: AIOKafkaProducer, control: ControlClient,
        given_brokers: bool,
    ) -> DemoResult:  # fmt: skip
        read, say = self._state.evicted, self._dashboard.say
        consumers = [
            DemoConsumer(control, "departures.UA", say),
            MixedConsumer(control, "departures.B6", say),
            ClosingConsumer(control, "departures.DL", say),
        ]
        await attach_all(consumers, start)
        flights = await asyncio.wrap_future(self._flights)
        extras = extra_records(QUIET_CARRIER)
        queues = sorted({f"departures.{r.key.decode()}" for r in (*extras, *flights)})
        start(watch_counts(control, queues, self._state))
        await self._replay(producer, [*extras, *flights], consumers)
        held = await self._await_idle(control, consumers, queues)
        proof = await self._prove(held)
        evicted = sum(row.counts.evicted for row in proof.accounts.values())

        async def all_read() -> bool:
            return read.total() >= evicted

        what = f"the plain Kafka consumer has read {evicted:,} evicted records"
        await until(what, all_read, read.total)
        return DemoResult(
            proof=proof,
            flights=len(flights),
            extras=len(extras),
            held=held,
            evicted=read,
            application=self._config.application,
            servers=self._config.bootstrap_servers,
            given_brokers=given_brokers,
        )

    async def _replay(
        self,
        producer: AIOKafkaProducer,
        records: list[ProducerRecord],
        consumers: Collection[DemoConsumer],
    ) -> None:
        """Send all records, and wait until the worker has processed them.

        Once the records of its partition are processed, a consumer stops settling.
        """
        state, dashboard = self._state, self._dashboard
        state.total, state.phase = len(records), "replaying"
        dashboard.say(f"replaying {len(records):,} records to {self._topic} at full speed")
        async with task_scope() as start:
            start(watch_through(self._config, self._topic, state))
            await replay(producer, self._topic, PARTITIONS, records)
            dashboard.say("the broker has acknowledged all records")
            sent = Counter(partition_of(record.key, PARTITIONS) for record in records)

            async def all_through() -> bool:
                for consumer in consumers:
                    partition = partition_of(consumer.key, PARTITIONS)
                    if state.positions[partition] >= sent[partition]:
                        consumer.stop_settling()
                return state.through >= state.total

            await until("the worker has processed all flights", all_through, lambda: state.through)
        dashboard.say(f"all {state.total:,} records are through the rings")

    async def _await_idle(
        self, control: ControlClient, consumers: Collection[DemoConsumer], queues: Collection[str]
    ) -> dict[str, dict[str, Any]]:
        """Wait until the application is idle, and return what each queue holds."""

        async def is_idle() -> bool:
            counts = (await control.listing(f"departures.{QUIET_CARRIER}", 0))["counts"]
            calls_are_over = counts["scheduled"] == 1 and counts["expired"] == 1
            return calls_are_over and all(consumer.is_idle for consumer in consumers)

        await until("all announcements are due and all consumers are idle", is_idle)
        listings = await asyncio.gather(*(control.listing(queue, _MOST_LISTED) for queue in queues))
        return dict(zip(queues, listings, strict=True))

    async def _prove(self, held: dict[str, dict[str, Any]]) -> Proof:
        state = self._state
        self._dashboard.say("the worker is idle; reading all topics to prove the accounts")

        def progress(role: Role, records: int) -> None:
            state.phase = f"proving, {role} topic"
            state.read_back += records

        proof = await prove(self._config, [self._topic], held, progress=progress)
        self._dashboard.say(f"{state.read_back:,} records read and reconciled")
        return proof


async def watch_through(config: WorkerConfig, topic: str, state: DemoState) -> None:
    """Update the worker's position from the offsets that its consumer group commits."""
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    admin = AIOKafkaAdminClient(bootstrap_servers=config.bootstrap_servers)
    try:
        await admin.start()
        while True:
            found = await admin.list_consumer_group_offsets(
                worker_group(config.application), partitions=tps
            )
            for tp, entry in found.items():
                state.positions[tp.partition] = max(entry.offset, 0)
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        await admin.close()


async def watch_counts(control: ControlClient, queues: Collection[str], state: DemoState) -> None:
    """Request the worker's counters every half second, for the display."""
    while True:
        listings = await asyncio.gather(*(control.listing(queue, 0) for queue in queues))
        for queue, listed in zip(queues, listings, strict=True):
            state.counts[queue] = listed["counts"]
        await asyncio.sleep(_COUNTS_SECONDS)


async def watch_worker(worker: WorkerProcess) -> None:
    """Check that the worker runs.

    Raises:
        WorkerFailed: it has ended.
    """
    while True:
        worker.check()
        await asyncio.sleep(_POLL_SECONDS)


async def until(
    what: str, done: Callable[[], Awaitable[bool]], progress: Callable[[], int] = lambda: 0
) -> None:
    """Wait until `done` returns true.

    Args:
        what: what it waits for, as the end of "The demo waited until …".
        done: the condition.
        progress: a number that changes as long as there is progress.

    Raises:
        Stuck: there was no progress for 60 seconds.
    """
    loop = asyncio.get_running_loop()
    last, since = progress(), loop.time()
    while not await done():
        if progress() != last:
            last, since = progress(), loop.time()
        elif loop.time() - since > _STUCK_SECONDS:
            raise Stuck(what)
        await asyncio.sleep(_POLL_SECONDS)
