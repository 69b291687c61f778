"""Paused pulling with a real worker and broker: the lag stays in Kafka, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from ringfaust.kafka.names import partition_transactional_id
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import DEADLINE_S, all_came_once, client_of, lose_disk, queues_of, some
from tests.chaos.harness import Application, until

pytestmark = pytest.mark.kafka


def pulling(broker: EmbeddedBroker, folder: Path) -> Application:
    """Two topics that are read directly, and one whose records take the hop."""
    names = {name: f"{name}-{folder.name}" for name in ("in", "side", "hopping")}
    routes = [
        {"topic": topic, "queue": "{header:to}", "hop": "always" if name == "hopping" else "never"}
        for name, topic in names.items()
    ]
    return Application(
        folder / "app", broker.bootstrap_servers, {"routes": routes, "queues": {"*": {}}},
        partitions=1, batch_records=100, session_timeout_ms=6_000,
    )  # fmt: skip


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    with pulling(broker, tmp_path) as app:
        yield app


@pytest.fixture(scope="module")
def running(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    """With a worker, for tests that use queues of their own."""
    with pulling(broker, tmp_path_factory.mktemp("pulling")) as app:
        app.new_worker()
        yield app


async def test_a_pause_survives_restarts_and_other_topics_are_still_read(app: Application) -> None:
    into, side, _ = app.inputs
    worker = app.new_worker()
    async with client_of(app) as client:
        await client.send(into, ["first"], "slow")
        await client.until_ready("slow", "first")
        await client.send(into, ["late"], "slow", ringfaust_delay_ms="4000")
        while not (await client.say("list", "slow"))["answer"]["scheduled"]:
            await asyncio.sleep(0.05)
        assert (await client.say("pause", "slow", what="pulling"))["ok"]

        mixed = some("m")
        await client.send(into, mixed, "slow", "fast")
        await client.send(side, some("s"), "fast")
        await client.until_ready("fast", *some("s"))
        assert worker.stop() == 0

        worker.start()
        # Time advances although a topic has not been read to its end at the assignment.
        await client.until_ready("slow", "late", "first")
        await client.say("attach", "slow", consumer="me", credit=1)
        assert (await client.say("ack", "slow", consumer="me", message="late"))["ok"]
        await client.say("detach", "slow", consumer="me")
        await lose_disk(app, worker)
        worker.start()
        await client.send(side, ["after"], "fast")
        await client.until_ready("fast", *some("s"), "after")
        assert await client.ready("slow") == ["first"]

        assert (await client.say("resume", "slow", what="pulling"))["ok"]
        await client.until_ready("slow", "first", *mixed[::2])
        await client.until_ready("fast", *some("s"), "after", *mixed[1::2])
        await all_came_once(app, client, "slow", "fast")
    log = worker.log_text()
    place = f"{into}, partition 0:"
    assert log.count(f"{place} paused at offset 2: queue 'slow' is paused") == 3
    assert log.count(f"{place} resumed at offset 2: queue 'slow' accepts messages again") == 1


async def test_the_hop_topic_waits_for_a_paused_queue(running: Application) -> None:
    _, side, hopping = running.inputs
    async with client_of(running) as client:
        await client.say("pause", "waits", what="pulling")
        await client.send(hopping, some("h", 500), "waits", "behind")
        await client.send(side, ["direct"], "behind")
        await client.until_ready("behind", "direct")
        assert await client.ready("waits") == []
        await client.say("delete_queue", "waits")  # the next message recreates it
        await client.until_ready("waits", *some("h", 500)[::2])
        await client.until_ready("behind", "direct", *some("h", 500)[1::2])
        await all_came_once(running, client, *await queues_of(running))


async def test_a_failed_commit_keeps_the_pause(running: Application) -> None:
    into, side, _ = running.inputs
    (worker,) = running.workers
    async with client_of(running) as client:
        await client.say("pause", "kept", what="pulling")
        await client.send(into, some("m"), "kept", "free")
        await until(
            lambda: "queue 'kept' is paused" in worker.log_text(), DEADLINE_S, "the topic is paused"
        )
        same_id = partition_transactional_id(running.worker_config.application, 0)
        async with AIOKafkaProducer(bootstrap_servers=running.servers, transactional_id=same_id):
            await client.send(side, ["a"], "free")
            await client.until_ready("free", "a")
        assert "the commit failed" in worker.log_text()
        await client.say("resume", "kept", what="pulling")
        await client.until_ready("kept", *some("m")[::2])
        await client.until_ready("free", "a", *some("m")[1::2])
        await all_came_once(running, client, *await queues_of(running))


async def test_pausing_under_load_skips_nothing_and_repeats_nothing(running: Application) -> None:
    """Pauses and resumes fall anywhere between the batches in flight."""
    into = running.inputs[0]
    (worker,) = running.workers
    before = worker.log_text().count("resumed at offset")
    async with client_of(running) as client:
        ids = some("n", 9_000)
        sending = asyncio.ensure_future(client.send(into, ids, "slow", "fast", "swift"))
        rounds = 0
        while not sending.done() or rounds < 20:
            rounds += 1
            await client.say("pause", "slow", what="pulling")
            if rounds % 3:
                await client.say("pause", "fast", what="pulling")
            await client.say("resume", "slow", what="pulling")
            await client.say("resume", "fast", what="pulling")
        await sending
        for number, queue in enumerate(("slow", "fast", "swift")):
            await client.until_ready(queue, *ids[number::3])
        await all_came_once(running, client, *await queues_of(running))
    assert worker.log_text().count("resumed at offset") > before + 1
