"""R113 on a real broker: a queue stays in one partition when the route of its topic changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from ringfaust.client import RingConsumer
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application, Worker

pytestmark = pytest.mark.kafka

KEY = "A"
QUEUE = f"key.{KEY}"


def queues(topic: str, hop: str) -> dict[str, Any]:
    route = {"topic": topic, "queue": "key.{key}", "hop": hop}
    return {"routes": [route], "queues": {"key.*": {"ring_size": -1}}}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    topic = f"in-{tmp_path.name}"
    app = Application(
        tmp_path / "app", broker.bootstrap_servers, queues(topic, "auto"),
        partitions=4, session_timeout_ms=6_000,
    )  # fmt: skip
    app.create_topics()
    yield app
    app.end()


def use_hop(app: Application, hop: str) -> None:
    app.write("queues.yaml", queues(app.inputs[0], hop))


async def send(app: Application, *values: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        where = partition_of(KEY, 4)
        for value in values:
            await producer.send_and_wait(
                app.inputs[0], value.encode(), KEY.encode(), partition=where
            )


async def consume(app: Application, count: int) -> list[str]:
    """Take and ack `count` messages, as a client that knows nothing but the queue's name."""
    values = []
    application = app.worker_config.application
    async with (
        asyncio.timeout(40),
        RingConsumer(
            QUEUE, credit=10, bootstrap_servers=app.servers, application=application
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
