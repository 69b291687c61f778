"""R111 on a real broker: state from elsewhere is never served."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from ringfaust.kafka.admin import connected_admin
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.worker.store.data_dir import worker_identity
from tests.broker.clients import application, balanced, client_of, delete_topics, some
from tests.chaos.harness import Application, Worker, until

pytestmark = pytest.mark.kafka

QUEUES = {"q": {"ring_size": -1}}


async def test_a_worker_refuses_the_folder_of_another_application(
    app: Application, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """R111. Line 1 of issue 14: the offset of the other application's state happens to fit."""
    folder = tmp_path / "other"
    folder.mkdir()
    with application(broker, folder, QUEUES) as other:
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


async def test_a_worker_with_a_copy_of_a_data_directory_is_another_worker(app: Application) -> None:
    """R125: with one identity, each of the two would put the other out of the group."""
    first = app.new_worker()
    async with client_of(app) as client:
        await client.send(app.inputs[0], some("before", 5), "q")
        await client.until_ready("q", *some("before", 5))
        first.stop()
        copy = Worker(app, 7)
        app.workers.append(copy)
        shutil.copytree(first.data_dir, copy.data_dir)
        for worker in (first, copy):
            worker.start()
        for worker in (first, copy):
            await until(worker.has_started, 60, f"{worker.name} starts")
        members = await two_members(app)
        await client.send(app.inputs[0], some("after", 5), "q")
        await client.until_ready("q", *some("before", 5), *some("after", 5))
        await balanced(app, client, "q")
        for worker in (first, copy):
            assert worker.alive
            identity = worker_identity(worker.data_dir)
            assert len([each for each in members if each.startswith(identity)]) == 1
    for worker in (first, copy):
        assert "is a copy" not in worker.log_text()


async def two_members(app: Application) -> list[str]:
    """The ids of the group's members once there are two: each begins with a static id."""
    found: list[str] = []
    async with (
        connected_admin({"bootstrap_servers": app.servers}) as admin,
        asyncio.timeout(60),
    ):
        while len(found) != 2:
            (response,) = await admin.describe_consumer_groups([app.worker_config.application])
            found = [member_id for member_id, *_ in response.groups[0][5]]
            await asyncio.sleep(0.1)
    return found


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
