"""R111, R112 on a real broker: recreated topics are read whole, and nothing is skipped silently."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import TopicAlreadyExistsError

from ringfaust.kafka.admin import connected_admin
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import Client, application, balanced, client_of, records_of, some
from tests.chaos.harness import Application, until

pytestmark = pytest.mark.kafka

QUEUES = {"q": {"ring_size": -1}}


def connected(app: Application) -> AbstractAsyncContextManager[AIOKafkaAdminClient]:
    return connected_admin({"bootstrap_servers": app.servers})


async def recreate(app: Application, topic: str, partitions: int = 1) -> None:
    """Delete a topic, and create it again as soon as the broker lets us."""
    async with connected(app) as admin:
        await admin.delete_topics([topic])
        async with asyncio.timeout(20):
            while True:
                answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
                if answer.topic_errors[0][1] == 0:
                    return
                assert answer.topic_errors[0][1] == TopicAlreadyExistsError.errno
                await asyncio.sleep(0.01)


async def delete_records(app: Application, topic: str, before: int) -> None:
    async with connected(app) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before)})


async def gaps(app: Application) -> list[dict[str, Any]]:
    """The `gap` events."""
    records = await records_of(app, "events")
    lines = [json.loads(line) for each in records for line in each.value.split(b"\n")]
    return [line for line in lines if line["event"] == "gap"]


async def send(app: Application, client: Client, ids: Sequence[str]) -> None:
    await client.send(app.inputs[0], ids, "q")


@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
async def test_a_recreated_topic_is_read_from_its_beginning(
    app: Application, is_running: bool
) -> None:
    """Line 2 of issue 14: 20 records were read, 25 are written to the new topic."""
    worker = app.new_worker()
    topic, old, new = app.inputs[0], some("old", 20), some("new", 25)
    async with client_of(app) as client:
        await send(app, client, old)
        await client.until_ready("q", *old)
        if not is_running:
            worker.stop()
        await recreate(app, topic)
    async with client_of(app) as client:  # producers remember the old topic
        await send(app, client, new)
        if not is_running:
            worker.start()
        await client.until_ready("q", *old, *new)
        (gap,) = await gaps(app)
        about = (gap["topic"], gap["partition"], gap["first"], gap["last"], gap["cause"])
        assert about == (topic, 0, 20, None, "recreated")
        assert "created again" in worker.log_text()
        assert "Traceback" not in worker.log_text()
        worker.kill()
        worker.start()
        assert await client.ready("q") == [*old, *new]
        assert len(await gaps(app)) == 1
        await balanced(app, client, "q")


async def test_a_topic_that_is_deleted_for_a_while_stops_nothing_else(app: Application) -> None:
    worker = app.new_worker()
    topic, side = app.inputs[:2]
    async with client_of(app) as client:
        await send(app, client, some("old", 3))
        await client.until_ready("q", *some("old", 3))
        async with connected(app) as admin:
            await admin.delete_topics([topic])
        await until(lambda: "does not exist" in worker.log_text(), 30, "it notices")
        await client.send(side, some("side", 2), "q")
        await client.until_ready("q", *some("old", 3), *some("side", 2))
        app.create_topics()
    async with client_of(app) as client:
        await send(app, client, some("new", 2))
        await client.until_ready("q", *some("old", 3), *some("side", 2), *some("new", 2))
    assert worker.alive
    assert "Traceback" not in worker.log_text()


@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
async def test_records_deleted_while_a_queue_is_paused_are_reported(
    app: Application, is_running: bool
) -> None:
    """Line 3 of issue 14."""
    worker = app.new_worker()
    topic = app.inputs[0]
    async with client_of(app) as client:
        await send(app, client, some("a", 2))
        await client.until_ready("q", *some("a", 2))
        await client.say("pause", "q", what="pulling")
        await send(app, client, some("b", 5))
        await until(lambda: "paused at offset" in worker.log_text(), 20, "it is paused")
        if not is_running:
            worker.stop()
        await delete_records(app, topic, 5)
        if not is_running:
            worker.start()
        await client.say("resume", "q", what="pulling")
        await client.until_ready("q", *some("a", 2), "b3", "b4")
        (gap,) = await gaps(app)
        about = (gap["topic"], gap["partition"], gap["first"], gap["last"], gap["cause"])
        assert about == (topic, 0, 2, 4, "deleted")
        assert gap["gaps"] == 1
        assert "offsets 2 to 4 were deleted" in worker.log_text()
        await balanced(app, client, "q")


async def test_a_worker_can_stop_at_a_gap(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with application(broker, tmp_path, QUEUES) as app:
        settings = {
            "application": app.worker_config.application, "bootstrap_servers": app.servers,
            "partitions": 1, "session_timeout_ms": 6_000, "on_gap": "stop",
        }  # fmt: skip
        app.write("worker.yaml", settings)
        async with client_of(app) as client:
            await send(app, client, some("a", 5))
            worker = app.new_worker()
            await client.until_ready("q", *some("a", 5))
            worker.stop()
            await send(app, client, some("b", 5))
            await delete_records(app, app.inputs[0], 8)
            worker.start()
            assert worker.wait(30) != 0
            assert "offsets 5 to 7 were deleted" in worker.log_text()
            assert "on_gap: continue" in worker.log_text()
            app.write("worker.yaml", {**settings, "on_gap": "continue"})
            worker.start()
            await client.until_ready("q", *some("a", 5), "b3", "b4")
