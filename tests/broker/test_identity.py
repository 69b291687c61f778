"""R111 on a real broker: state from elsewhere is never served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import application, balanced, client_of, some
from tests.chaos.harness import Application, Worker, until

pytestmark = pytest.mark.kafka

RING = {"q": {"ring_size": -1}}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    with application(broker, tmp_path, RING) as app:
        yield app


async def delete_topics(app: Application, *topics: str) -> None:
    """Delete topics, and wait until they are gone."""
    admin = AIOKafkaAdminClient(bootstrap_servers=app.servers)
    await admin.start()
    try:
        await admin.delete_topics(list(topics))
        async with asyncio.timeout(20):
            while set(topics) & set(await admin.list_topics()):
                await asyncio.sleep(0.1)
    finally:
        await admin.close()


async def test_a_worker_refuses_the_folder_of_another_application(
    app: Application, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """R111. Line 1 of issue 14: the offset of the other application's state happens to fit."""
    folder = tmp_path / "other"
    folder.mkdir()
    with application(broker, folder, RING) as other:
        first, second = other.new_worker(), app.new_worker()
        async with client_of(other) as client:
            await client.send(other.inputs[0], some("theirs", 5), "q")
            await client.until_ready("q", *some("theirs", 5))
        first.stop()
        async with client_of(app) as client:
            await client.send(app.inputs[0], some("mine", 5), "q")
            await client.until_ready("q", *some("mine", 5))
            second.stop()
            thief = Worker(app, 7)
            app.workers.append(thief)
            thief.data_dir = first.data_dir
            thief.start()
            assert thief.wait(30) != 0
            log = thief.log_text()
            names = [each.worker_config.application for each in (other, app)]
            assert all(repr(name) in log for name in names)
            assert "data_dir of its own" in log
            assert "Traceback" not in log
            second.start()
            assert await client.ready("q") == some("mine", 5)
            await balanced(app, client, "q")


async def test_a_kept_folder_of_a_cluster_that_was_rebuilt_is_set_aside(app: Application) -> None:
    """R111: all topics are new, and the folder is older. The changelog's end happens to fit."""
    worker = app.new_worker()
    async with client_of(app) as client:
        await client.send(app.inputs[0], some("old", 3), "q")
        await client.until_ready("q", *some("old", 3))
    worker.stop()
    roles = "control hop dispatched evicted dead events replies changelog".split()
    await delete_topics(app, *app.inputs, *(app.topic(role) for role in roles))
    app.create_topics()
    rebuilt = Worker(app, 5)
    app.workers.append(rebuilt)
    rebuilt.start()  # a folder of its own, to fill the changelog
    async with client_of(app) as client:
        for name in some("new", 9):
            await client.send(app.inputs[0], [name], "q")
        await client.until_ready("q", *some("new", 9))
        rebuilt.stop()
        worker.start()
        assert await client.ready("q") == some("new", 9)
        await until(lambda: "set-aside" in worker.log_text(), 5, "the folder is set aside")
        await balanced(app, client, "q")
