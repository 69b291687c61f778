"""Repartitioned topics: any number of partitions, each record once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic

from ringfaust.config.topics import check_topics
from ringfaust.kafka.admin import connected_admin
from ringfaust.kafka.names import repartition_transactional_id
from ringfaust.protocol import headers as h
from ringfaust.testing.accounts.prove import prove
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import delete_group, reader_of, records_of
from tests.chaos.harness import Application, Worker, until

pytestmark = pytest.mark.kafka

BURST = 8_000
READ_S = 40.0


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    """An application with 2 partitions whose topics have 3 and 1, without workers yet."""
    three, one = (f"{name}-{tmp_path.name}" for name in ("three", "one"))
    queues = {
        "routes": [
            {"topic": three, "queue": "to.{header:to}"},
            {"topic": one, "queue": "key.{key}", "hop": "always"},
        ],
        "queues": {"to.*": {"ring_size": -1}, "key.*": {"ring_size": -1}},
    }
    application = Application(
        tmp_path / "app", broker.bootstrap_servers, queues,
        partitions=2, batch_records=50, session_timeout_ms=6000,
    )  # fmt: skip
    yield application
    application.end()


class Events:
    """The sources of all `added` events, in order within each partition."""

    def __init__(self, app: Application) -> None:
        self.added: list[str] = []
        self._consumer = reader_of(app, "events")

    async def __aenter__(self) -> Events:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def read_until(self, true: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(READ_S):
                while not true():
                    for records in (await self._consumer.getmany(timeout_ms=50)).values():
                        lines = [line for r in records for line in r.value.splitlines()]
                        events = [json.loads(line) for line in lines]
                        self.added += [e["source"] for e in events if e["event"] == "added"]
        except TimeoutError:
            raise AssertionError(f"only {len(self.added)} messages were added in time") from None


class Producer:
    """Writes to the inputs, and remembers where."""

    def __init__(self, app: Application) -> None:
        self._three, self._one = app.inputs
        self._client = AIOKafkaProducer(bootstrap_servers=app.servers, linger_ms=5)
        self.sources: list[str] = []

    async def __aenter__(self) -> Producer:
        await self._client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    async def burst(self, count: int) -> None:
        """Send half to each topic, for 7 queues each, to all partitions."""
        sent = []
        for number in range(count):
            name, value = b"%d" % (number % 7), b"v%d" % number
            if number % 2:
                sent.append(await self._client.send(self._one, value, name))
            else:
                where, to = number // 2 % 3, [("to", name)]
                sent.append(
                    await self._client.send(self._three, value, partition=where, headers=to)
                )
        for record in await asyncio.gather(*sent):
            self.sources.append(f"{record.topic}/{record.partition}/{record.offset}")

    async def nonsense(self) -> str:
        """Send a record whose key cannot name a queue. Returns its source."""
        record = await self._client.send_and_wait(self._one, b"nonsense", b"\xff")
        return f"{record.topic}/{record.partition}/{record.offset}"


async def create_topics(app: Application) -> None:
    three, one = app.inputs
    async with connected_admin({"bootstrap_servers": app.servers}) as admin:
        await admin.create_topics([NewTopic(three, 3, 1), NewTopic(one, 1, 1)])
    app.create_topics()
    found = await check_topics(app.worker_config, app.queues_config)
    assert not [problem for problem in found if problem.severity == "error"]


def owned(worker: Worker) -> list[str]:
    """Its last assignment, from its log."""
    assigned = re.findall(r"INFO assigned: (.*)", worker.log_text())
    return assigned[-1].split("; ") if assigned else []


async def until_shared(one: Worker, other: Worker) -> None:
    """Wait until each has one partition, and some of the four that are repartitioned."""

    def shared() -> bool:
        return (
            len(owned(one)) >= 2
            and len({*owned(one), *owned(other)}) == 6
            and (len(owned(one)) + len(owned(other)) == 6)
        )

    await until(shared, 60, "two workers share the partitions")


async def left_behind(app: Application, worker: Worker) -> int:
    """How many records of a dead worker's partitions have not been repartitioned."""
    places = [name.split(", partition ") for name in owned(worker) if ", partition " in name]
    tps = [TopicPartition(topic, int(number)) for topic, number in places]
    async with AIOKafkaConsumer(
        bootstrap_servers=app.servers, group_id=app.worker_config.application
    ) as consumer:
        ends = await consumer.end_offsets(tps)
        return sum([end - (await consumer.committed(tp) or 0) for tp, end in ends.items()])


async def test_each_record_arrives_once_although_a_worker_is_killed(app: Application) -> None:
    await create_topics(app)
    victim, other = app.new_worker(), app.new_worker()
    await until_shared(victim, other)
    async with Producer(app) as producer, Events(app) as events:
        nonsense = await producer.nonsense()
        await producer.burst(BURST)
        await events.read_until(lambda: len(events.added) >= BURST // 20)
        victim.kill()
        assert await left_behind(app, victim) > 0  # it was killed in the middle
        await producer.burst(BURST // 4)
        victim.start()
        await events.read_until(lambda: len(events.added) >= len(producer.sources))
        await until_shared(victim, other)

        for worker in (victim, other):  # both stop, and one continues
            assert worker.stop() == 0
        await producer.burst(100)
        other.start()
        await events.read_until(lambda: len(events.added) >= len(producer.sources))

        assert sorted(events.added) == sorted(producer.sources)
        (record,) = await records_of(app, "dead")
        dead = dict(record.headers)
        assert (dead[h.REASON], dead[h.SOURCE]) == (b"undecodable", nonsense.encode())
        proof = await prove(app.worker_config, app.inputs)
        assert proof.balanced, proof.problems()
        assert proof.undecodable == 1
    assert other.stop() == 0


async def test_a_fenced_worker_continues_after_what_is_committed(app: Application) -> None:
    await create_topics(app)
    worker = app.new_worker()
    topic = app.inputs[1]
    same_id = repartition_transactional_id(app.worker_config.application, topic, 0)
    async with Producer(app) as producer, Events(app) as events:
        await producer.burst(BURST // 4)
        await events.read_until(lambda: len(events.added) >= BURST // 20)
        async with AIOKafkaProducer(bootstrap_servers=app.servers, transactional_id=same_id):
            await producer.burst(BURST // 4)
            await until(
                lambda: "the commit failed" in worker.log_text(), 60, "the worker is fenced"
            )
        await events.read_until(lambda: len(events.added) >= len(producer.sources))
        assert sorted(events.added) == sorted(producer.sources)
        proof = await prove(app.worker_config, app.inputs)
        assert proof.balanced, proof.problems()
    assert worker.stop() == 0


async def leave_no_lag(app: Application) -> None:
    """Abort a transaction in each topic: nothing is left to read, so an operator sees no lag."""
    ours = [app.inputs[1], app.topic("hop"), app.topic("control")]
    tps = [TopicPartition(topic, 0) for topic in ours]
    async with (
        AIOKafkaProducer(bootstrap_servers=app.servers, transactional_id=ours[0]) as producer,
        AIOKafkaConsumer(
            bootstrap_servers=app.servers, group_id=app.worker_config.application
        ) as consumer,
    ):
        await producer.begin_transaction()
        for topic in ours:
            await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.abort_transaction()

        async with asyncio.timeout(READ_S):
            while {tp: await consumer.committed(tp) for tp in tps} != (
                await consumer.end_offsets(tps)
            ):
                await asyncio.sleep(0.1)


async def test_aborted_transactions_leave_no_lag_and_without_offsets_nothing_is_copied_again(
    app: Application,
) -> None:
    """Kafka forgets the offsets if the group was empty for long; or somebody deletes them."""
    await create_topics(app)
    worker = app.new_worker()
    async with Producer(app) as producer, Events(app) as events:
        await producer.burst(200)
        await events.read_until(lambda: len(events.added) >= len(producer.sources))
        await leave_no_lag(app)
        assert worker.stop() == 0
        await delete_group(app)
        await producer.burst(20)
        worker.start()
        await events.read_until(lambda: len(events.added) >= len(producer.sources))
        assert "the consumer group has no offset any more; continuing at" in worker.log_text()
        proof = await prove(app.worker_config, app.inputs)
        assert proof.balanced, proof.problems()
        assert sorted(events.added) == sorted(producer.sources)
    assert worker.stop() == 0
