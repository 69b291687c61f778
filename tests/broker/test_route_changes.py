"""R113 on a real broker: a queue stays in one partition when the route of its topic changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewPartitions

from ringfaust.client import RingConsumer
from ringfaust.kafka.admin import connected_admin
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import admin_of
from tests.chaos.harness import Application, Worker

pytestmark = pytest.mark.kafka

KEY, OTHER = "A", "B"
QUEUE, PURGED = f"key.{KEY}", f"key.{OTHER}"


def queues(topic: str, hop: str) -> dict[str, Any]:
    route = {"topic": topic, "queue": "key.{key}", "hop": hop}
    return {"routes": [route], "queues": {"key.*": {"ring_size": -1}}}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    topic = f"in-{tmp_path.name}"
    with Application(
        tmp_path / "app", broker.bootstrap_servers, queues(topic, "auto"),
        partitions=4, session_timeout_ms=6_000,
    ) as app:  # fmt: skip
        yield app


def use_hop(app: Application, hop: str) -> None:
    app.write("queues.yaml", queues(app.inputs[0], hop))


async def send(
    app: Application, *values: str, key: str = KEY, partition: int | None = None
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        where = partition_of(key, 4) if partition is None else partition
        for value in values:
            await producer.send_and_wait(
                app.inputs[0], value.encode(), key.encode(), partition=where
            )


async def consume(app: Application, count: int, queue: str = QUEUE) -> list[str]:
    """Take and ack `count` messages, as a client that knows nothing but the queue's name."""
    values = []
    application = app.worker_config.application
    async with (
        asyncio.timeout(40),
        RingConsumer(
            queue, credit=10, bootstrap_servers=app.servers, application=application
        ) as consumer,
    ):
        async for message in consumer:
            values.append((message.value or b"").decode())
            await message.ack(confirm=True)  # the worker stops right after
            if len(values) == count:
                return values
    raise AssertionError


def refused(worker: Worker) -> str:
    worker.start()
    assert worker.wait(30) != 0
    assert "Traceback" not in worker.log_text()
    return worker.log_text().rpartition("--- start")[2]


async def test_a_change_of_hop_is_refused_until_the_queue_is_empty_and_reads_nothing_twice(
    app: Application,
) -> None:
    """Line 4 of issue 14: auto, always, auto."""
    worker = app.new_worker()
    await send(app, "a", "b")
    assert await consume(app, 1) == ["a"]
    worker.stop()
    use_hop(app, "always")
    log = refused(worker)
    assert json.dumps(QUEUE)[1:-1] in log
    assert "1 messages, to partition" in log
    assert "Restore the earlier routes" in log

    use_hop(app, "auto")
    worker.start()
    assert await consume(app, 1) == ["b"]
    worker.stop()
    use_hop(app, "always")
    worker.start()
    await send(app, "c")
    assert await consume(app, 1) == ["c"]
    worker.stop()
    use_hop(app, "auto")
    worker.start()
    await send(app, "d")
    assert await consume(app, 1) == ["d"]
    assert "StateLost" not in worker.log_text()


async def test_the_way_out_of_a_topic_that_has_got_more_partitions(app: Application) -> None:
    """Case C2 of issue 38: the text named other topics, and its advice led in a circle.

    One queue is consumed, the other one purged.
    """
    worker, topic = app.new_worker(), app.inputs[0]
    await send(app, "a", "b")
    await send(app, "x", "y", key=OTHER)
    assert await consume(app, 1) == ["a"]
    assert await consume(app, 1, PURGED) == ["x"]
    async with connected_admin({"bootstrap_servers": app.servers}) as admin:
        await admin.create_partitions({topic: NewPartitions(5)})
    assert worker.wait(60) != 0
    assert f"topic {topic} has got more than the 4 partitions" in worker.log_text()
    assert "Remove its route" in worker.log_text()
    await send(app, "c", partition=4)
    log = refused(worker)
    assert f"Topic {topic} has 5 partitions" in log
    assert "Remove its route" in log

    routes, rings = (
        [{"topic": f"other-{topic}", "queue": "key.other"}],
        {"key.*": {"ring_size": -1}},
    )
    app.write("queues.yaml", {"routes": routes, "queues": rings})
    created = app.run_inside("topics", "create", "--config", app.config_dir)
    assert created.returncode == 0, created.stderr
    worker.start()
    async with admin_of(app) as operator:
        await operator.purge(PURGED)
    assert await consume(app, 1) == ["b"]
    worker.stop()
    again = queues(topic, "always")
    app.write("queues.yaml", {**again, "routes": [*routes, *again["routes"]]})
    worker.start()
    await send(app, "d", partition=4)
    await send(app, "z", key=OTHER, partition=4)
    assert await consume(app, 2) == ["c", "d"]
    assert await consume(app, 1, PURGED) == ["z"]
    assert "Traceback" not in worker.log_text()
