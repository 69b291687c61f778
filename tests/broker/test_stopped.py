"""A partition that cannot go on stops alone, and goes on when an operator says how (R123)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

from ringfaust.client import Admin, StatusReader, StoppedPartition
from ringfaust.kafka.admin import connected_admin
from ringfaust.kafka.names import (
    partition_transactional_id,
    second_transactional_id,
    worker_group,
)
from ringfaust.protocol.stored_rows.queue_rows import read_queue, write_queue
from ringfaust.testing.accounts.prove import prove
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.transactional.writer import TransactionalWriter
from tests.background import running
from tests.broker.clients import admin_of
from tests.chaos.harness import Application, until
from tests.chaos.verdict import wait_until_read

pytestmark = pytest.mark.kafka

PARTITIONS = 4
POISONED = 2
DEADLINE_S = 60
TRANSACTIONAL_ID, LITERAL, WRITE, DENY = 5, 3, 4, 2
"""Kafka's numbers for these: a type of resource, of pattern, of operation and of permission."""
EVERY_S = 0.05
"""How often each of the other partitions gets a message."""

SHIM = """
import sys
from importlib.abc import MetaPathFinder

class Patch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "ringfaust.worker.assignment":
            return None
        sys.meta_path.remove(self)
        from ringfaust.worker.partition.work import PartitionWork
        decide = PartitionWork.decide
        def poisoned(self, records, wall_ms):
            def checked():
                for record in records:
                    is_new = record.offset >= self.positions.get(record.topic, 0)
                    if is_new and record.value == b"poison":
                        raise ZeroDivisionError("a bug of the decoder")
                    yield record
            decide(self, checked(), wall_ms)
        PartitionWork.decide = poisoned
        return None

sys.meta_path.insert(0, Patch())
"""
"""Gives a worker a bug: it cannot decide a record with the value `poison`."""


class Town:
    """An application with a queue in each partition, and a client that uses them."""

    def __init__(self, app: Application, producer: AIOKafkaProducer, admin: Admin) -> None:
        self.app = app
        self.producer = producer
        self.admin = admin
        self.client = app.worker_config.client_options()
        self.silences: dict[int, float] = {}
        """By partition: the longest time in seconds without a new output."""

    async def send(self, partition: int, value: bytes = b"x") -> str:
        """Send a message to the queue of a partition. Returns its position."""
        topic, headers = self.app.inputs[0], [("to", f"q{partition}".encode())]
        sent = await self.producer.send_and_wait(topic, value, headers=headers, partition=partition)
        return f"{topic}/{partition}/{sent.offset}"

    async def added(self, partition: int) -> int:
        answer = await self.admin._ask(partition, "list", queue=f"q{partition}", limit=0)
        return int(answer["counts"]["added"])

    async def until_added(self, partition: int, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while await self.added(partition) < count:
                await asyncio.sleep(0.05)

    async def say(self, *command: str) -> str:
        """Run a command of `ringfaust partition`, which must succeed."""
        config = ("--config", self.app.config_dir)
        done = await asyncio.to_thread(self.app.run_inside, "partition", *command, *config)
        assert done.returncode == 0, done.stderr + self.app.workers[0].log_text()[-3_000:]
        return done.stdout

    def states(self) -> set[str]:
        """Those of the partitions, as `ringfaust partition ls` lists them."""
        config = ("--config", self.app.config_dir)
        listed = self.app.run_inside("partition", "ls", "--json", *config).stdout
        return {each["state"] for each in json.loads(listed)}

    async def stopped(self, *, at: str = "") -> StoppedPartition:
        """Wait until the worker reports that the partition has stopped."""
        async with self.status() as status, asyncio.timeout(DEADLINE_S):
            while True:
                for worker in status.workers():
                    for each in worker.stopped:
                        assert each.partition == str(POISONED)
                        if each.at == at:
                            assert worker.partitions == (0, 1, 3)
                            return each
                await status.changed(status.revision)

    def status(self) -> StatusReader:
        return StatusReader(
            bootstrap_servers=self.app.servers, application=self.app.worker_config.application
        )

    async def changelog(self) -> dict[bytes, bytes]:
        """The rows of the partition."""
        tp = TopicPartition(self.app.topic("changelog"), POISONED)
        rows: dict[bytes, bytes] = {}
        async with AIOKafkaConsumer(**self.client, isolation_level="read_committed") as consumer:
            consumer.assign([tp])
            end = (await consumer.end_offsets([tp]))[tp]
            consumer.seek(tp, 0)
            while await consumer.position(tp) < end:
                for record in (await consumer.getmany(tp, timeout_ms=200)).get(tp, ()):
                    rows[record.key] = record.value
        return rows

    async def write_row(self, key: bytes, value: bytes) -> None:
        topic = self.app.topic("changelog")
        await self.producer.send_and_wait(topic, value, key=key, partition=POISONED)

    async def fence(self) -> None:
        """Have the worker open the partition again when it commits: others have used its ids."""
        first = partition_transactional_id(self.app.worker_config.application, POISONED)
        for name in (first, second_transactional_id(first)):
            writer = TransactionalWriter(self.client, name)
            await writer.start()
            await writer.stop()


@asynccontextmanager
async def traffic(town: Town) -> AsyncIterator[None]:
    """Send to the other partitions all the time, and note how long each is silent."""
    others = [number for number in range(PARTITIONS) if number != POISONED]

    async def send(partition: int) -> None:
        while True:
            await town.send(partition)
            await asyncio.sleep(EVERY_S)

    async def watch() -> None:
        evicted = town.app.topic("evicted")
        async with AIOKafkaConsumer(**town.client, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition(evicted, number) for number in others])
            await consumer.seek_to_end()
            last: dict[int, float] = {}
            async for record in consumer:
                now_s = time.monotonic()
                silent_s = now_s - last.get(record.partition, now_s)
                last[record.partition] = now_s
                town.silences[record.partition] = max(
                    silent_s, town.silences.get(record.partition, 0.0)
                )

    async with running(watch(), *map(send, others)):
        yield


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that knows permissions. Without any for a resource, everything is allowed."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    properties = {
        "authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true",
    }  # fmt: skip
    with EmbeddedBroker(properties=properties) as started:
        yield started


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    route = {"topic": f"in-{tmp_path.name}", "queue": "{header:to}", "hop": "never"}
    queues = {"routes": [route], "queues": {"*": {"ring_size": 2}}}
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "sitecustomize.py").write_text(SHIM)
    with Application(
        tmp_path / "app", broker.bootstrap_servers, queues, partitions=PARTITIONS,
        session_timeout_ms=6_000,
    ) as app:  # fmt: skip
        app.new_worker(shims)
        yield app


async def too_large(town: Town) -> None:
    """What is evicted does not fit into its topic, until that takes more."""
    await set_limit(town, 20_000)
    await town.send(POISONED, os.urandom(40_000))
    await town.send(POISONED)
    first = await town.send(POISONED)  # it would evict the large one
    second = await town.send(POISONED)
    stopped = await town.stopped(at=first)
    assert "MessageSizeTooLargeError" in stopped.reason
    assert "max.message.bytes" in stopped.remedy
    await town.say("skip", "2", first, "--yes")
    await town.stopped(at=second)
    await set_limit(town, 2_000_000)
    await town.say("retry", "2")


async def set_limit(town: Town, size: int) -> None:
    """Set how large a record the topic for evicted records accepts."""
    settings = {"max.message.bytes": str(size)}
    resource = ConfigResource(ConfigResourceType.TOPIC, town.app.topic("evicted"), settings)
    async with connected_admin(town.client) as admin:
        await admin.alter_configs([resource])


async def undecodable(town: Town) -> None:
    """The worker has a bug that one record shows."""
    await town.send(POISONED)
    at = await town.send(POISONED, b"poison")
    await town.send(POISONED)
    stopped = await town.stopped(at=at)
    assert stopped.reason == "ZeroDivisionError: a bug of the decoder"
    await town.say("skip", "2", at, "--yes")


async def corrupt_row(town: Town) -> None:
    """A row of the state cannot be read."""
    rows = await town.changelog()
    key = next(key for key in rows if key.endswith(b"positions"))
    await town.fence()
    await town.write_row(key, b"\xff\xff")
    await town.send(POISONED)
    await town.stopped()
    await town.write_row(key, rows[key])
    await town.say("retry", "2")


async def broken_accounts(town: Town) -> None:
    """The counts of a queue do not add up."""
    key, row = await queue_row(town)
    counts = list(read_queue(row).counts)
    counts[0] += 1
    await town.fence()
    await town.write_row(key, write_queue(read_queue(row)._replace(counts=tuple(counts))))
    at = await town.send(POISONED)
    assert "BrokenAccounts" in (await town.stopped(at=at)).reason
    await town.write_row(key, row)
    await town.say("retry", "2")


async def queue_row(town: Town) -> tuple[bytes, bytes]:
    for key, row in (await town.changelog()).items():
        if b"q2" in key and row:
            try:
                if read_queue(row).counts:
                    return key, row
            except Exception:  # noqa: S112 - a row of another kind
                continue
    raise AssertionError


async def missing_state(town: Town) -> None:
    """The group has read further than the state: part of the changelog seems to be missing."""
    group = worker_group(town.app.worker_config.application)
    tp = TopicPartition(town.app.inputs[0], POISONED)
    await set_offset(town, group, tp, 1_000_000)
    await town.fence()
    await town.send(POISONED)
    stopped = await town.stopped()
    assert "StateLost" in stopped.reason
    await set_offset(town, group, tp, 0)
    await town.say("retry", "2")


async def set_offset(town: Town, group: str, tp: TopicPartition, offset: int) -> None:
    writer = TransactionalWriter(town.client, f"{group}-test")
    await writer.start()

    async def nothing() -> Any:
        return []

    await writer.commit(nothing, {tp: offset}, group)
    await writer.stop()


async def forbidden(town: Town) -> None:
    """The worker may no longer use the partition's transactional ids."""
    await change_permission(town, CreateAclsRequest)
    await town.send(POISONED)
    stopped = await town.stopped()
    assert "TransactionalIdAuthorizationFailed" in stopped.reason
    await change_permission(town, DeleteAclsRequest)
    await town.say("retry", "2")


async def change_permission(
    town: Town, request: type[CreateAclsRequest] | type[DeleteAclsRequest]
) -> None:
    """Create or delete what forbids everybody to write with the partition's transactional ids."""
    first = partition_transactional_id(town.app.worker_config.application, POISONED)
    async with connected_admin(town.client) as admin:
        for name in (first, second_transactional_id(first)):
            forbids = request(TRANSACTIONAL_ID, name, LITERAL, "User:ANONYMOUS", "*", WRITE, DENY)
            await admin._send_request(forbids)


# Those that stop at no record do not follow one another: what the worker said of the one before
# would be taken for the news.
POISONS: list[Callable[[Town], Awaitable[None]]] = [
    too_large, corrupt_row, undecodable, missing_state, broken_accounts, forbidden,
]  # fmt: skip


@pytest.mark.timeout(600)
async def test_one_poisoned_partition_stops_alone(
    app: Application, record_property: Callable[[str, object], None]
) -> None:
    """R123: the others lose nothing, and the fourth comes back with an account of all it had."""
    (worker,) = app.workers
    async with (
        AIOKafkaProducer(bootstrap_servers=app.servers) as producer,
        admin_of(app) as admin,
    ):
        town = Town(app, producer, admin)
        for partition in range(PARTITIONS):
            for _ in range(5):
                await town.send(partition)
            await town.until_added(partition, 5)
        for poison in POISONS:
            stops = worker.log_text().count("partition 2: stopped at")
            async with traffic(town):
                await poison(town)
                last = await town.added(POISONED)
                await town.send(POISONED)
                await town.until_added(POISONED, last + 1)
            assert worker.alive
            assert worker.log_text().count("partition 2: stopped at") > stops, poison.__name__
            await wait_until_read(app, DEADLINE_S)
            silence_s = round(max(town.silences.values()), 2)
            town.silences.clear()
            record_property(f"longest_silence_s, {poison.__name__}", silence_s)
            print(f"{poison.__name__}: the others were silent for {silence_s} s at most")
        held = {
            f"q{number}": await admin._ask(number, "list", queue=f"q{number}", limit=10_000)
            for number in range(PARTITIONS)
        }
    proof = await prove(app.worker_config, app.inputs, held)
    assert proof.balanced, proof.problems()
    await until(lambda: town.states() == {"serving"}, DEADLINE_S, "all are served")
    assert worker.alive


async def test_a_partition_that_cannot_be_opened_keeps_no_other_closed(app: Application) -> None:
    """R123: a worker that starts, or takes partitions over, opens those that it can."""
    async with (
        AIOKafkaProducer(bootstrap_servers=app.servers) as producer,
        admin_of(app) as admin,
    ):
        town = Town(app, producer, admin)
        for partition in range(PARTITIONS):
            await town.send(partition)
            await town.until_added(partition, 1)
        rows = await town.changelog()
        key = next(key for key in rows if key.endswith(b"positions"))
        (worker,) = app.workers
        assert worker.stop() == 0
        await town.write_row(key, b"\xff\xff")
        worker.wipe()
        worker.start()
        stopped = await town.stopped()
        assert "partition 2: stopped at no record" in worker.log_text()
        for partition in {*range(PARTITIONS)} - {POISONED}:
            await town.send(partition)
            await town.until_added(partition, 2)
        wrong = ("partition", "skip", "2", "in/2/0", "--yes", "--config", app.config_dir)
        again = app.run_inside(*wrong)
        assert "partition 2 has stopped at no record, not at in/2/0" in again.stderr
        shown = await town.say("show", "2")
        assert stopped.reason in shown
        assert "retry" in shown
        await town.write_row(key, rows[key])
        await town.say("retry", "2")
        await town.send(POISONED)
        await town.until_added(POISONED, 2)
