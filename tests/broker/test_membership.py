"""A worker that its group has lost gives its partitions up, and fences nobody (R126)."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
import yaml
from aiokafka import AIOKafkaConsumer, TopicPartition

from ringfaust.protocol.records import Role
from ringfaust.protocol.status import SIGNS, Sign, read_sign
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import all_came_once, client_of, some
from tests.broker.proxy import Proxy
from tests.chaos.harness import Application, Worker, until
from tests.chaos.network import COORDINATOR

pytestmark = pytest.mark.kafka

FOREVER = 1_000_000
DEADLINE_S = 60
MESSAGES = 200
QUEUES = {"q": {"ring_size": 1_000}}
EVERY_S = 0.1
"""So many messages, one after the other, take three times as long as a session (6 s)."""


def worker_behind(app: Application, servers: str) -> Worker:
    """A worker of the application that reaches the broker only by a proxy."""
    worker = Worker(app, len(app.workers))
    app.workers.append(worker)
    folder = app.folder / "config-behind"
    folder.mkdir()
    for name in ("queues.yaml", "worker.yaml"):
        content = yaml.safe_load((app.config_dir / name).read_text())
        if name == "worker.yaml":
            content["bootstrap_servers"] = servers
        (folder / name).write_text(yaml.safe_dump(content))
    worker._config = folder
    worker.start()
    return worker


async def test_a_worker_without_its_coordinator_does_not_fence_its_successor(
    app: Application,
) -> None:
    proxy = Proxy(app.servers)
    async with proxy.running() as servers, client_of(app) as client:
        cut_off = worker_behind(app, servers)
        await until(cut_off.has_started, DEADLINE_S, "it serves the partition")
        await client.send(app.inputs[0], some("a", 5), "q")
        await client.until_ready("q", *some("a", 5))
        for request in COORDINATOR:
            proxy.lose(request, FOREVER)
        successor = app.new_worker()
        await until(
            lambda: "not ready: the group's coordinator does not answer" in cut_off.log_text(),
            DEADLINE_S, "it says that it is not ready",
        )  # fmt: skip
        await until(
            lambda: " INFO ready: partition 0" in successor.log_text(), DEADLINE_S,
            "the partition has a new owner",
        )  # fmt: skip
        for number in range(MESSAGES):
            await client.send(app.inputs[0], [f"b{number}"], "q")
            await asyncio.sleep(EVERY_S)
        async with asyncio.timeout(DEADLINE_S):
            while (await client.counts("q"))["added"] < 5 + MESSAGES:
                await asyncio.sleep(EVERY_S)
        assert "ProducerFenced" not in successor.log_text()
        assert "given up" in cut_off.log_text()
        cut_off.kill()
        await all_came_once(app, client, "q")


def patient(
    broker: EmbeddedBroker, folder: Path, failover_after_ms: int, **settings: object
) -> Application:
    """An application with sessions so long that only the workers can notice that one is gone."""
    route = {"topic": f"in-{folder.name}", "queue": "q", "hop": "never"}
    return Application(
        folder / "app", broker.bootstrap_servers, {"routes": [route], "queues": {"q": {}}},
        session_timeout_ms=120_000, failover_after_ms=failover_after_ms, **settings,
    )  # fmt: skip


def share(worker: Worker) -> set[int]:
    """The partitions for which a worker is ready since its start."""
    found = re.findall(" INFO (?:not )?ready: (.*)", worker.log_text().rpartition("--- start\n")[2])
    return {
        int(number) for number in re.findall(r"partition (\d+)(?:;|$)", found[-1] if found else "")
    }


async def until_each_has_one(first: Worker, second: Worker) -> None:
    await until(lambda: len(share(first)) == len(share(second)) == 1, DEADLINE_S, "each has one")


def are_followed(app: Application) -> bool:
    """Whether both partitions have a standby that is caught up."""
    found = json.loads(app.run("worker", "ls", "--json", "--config", str(app.config_dir)).stdout)
    followed = [{"0": 0}, {"1": 0}]
    return sorted((each["standbys"] for each in found if not each["is_stale"]), key=str) == followed


async def test_a_killed_worker_is_replaced_before_its_session_ends(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    with patient(broker, tmp_path, failover_after_ms=1_000) as app:
        first, second = app.new_worker(), app.new_worker()
        await until_each_has_one(first, second)
        first.kill()
        await until(lambda: share(second) == {0, 1}, DEADLINE_S, "the other one has both")
        assert "gives no sign of life; removing it from the group" in second.log_text()


async def test_an_idle_worker_hands_a_partition_over_and_comes_back_unnoticed(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """R124: it finds out that another one has its partition; nothing else would tell it.

    R125: after a restart it has the same identity, and gets the same partitions.
    """
    with patient(broker, tmp_path, failover_after_ms=60_000) as app:
        first = app.new_worker()
        await until(lambda: share(first) == {0, 1}, DEADLINE_S, "it has both")
        second = app.new_worker()
        await until_each_has_one(first, second)
        await until(
            lambda: "handed over (ProducerFenced" in first.log_text(), DEADLINE_S, "it ends"
        )
        mine = share(first)
        await until(lambda: are_followed(app), DEADLINE_S, "standbys are open, and have said so")
        before = second.log_text()
        first.kill()
        first.start()
        await until(lambda: share(first) == mine, DEADLINE_S, "it has its partition again")
        assert second.log_text() == before


_BLOCK = """
import pathlib, signal, time


def block(*_):
    print("--- blocked", flush=True)
    while not pathlib.Path(__file__).with_name("go-on").exists():
        time.sleep(0.05)


signal.signal(signal.SIGURG, block)
"""
"""On a signal, the main thread waits, and with it the event loop of the app."""


async def next_sign(consumer: AIOKafkaConsumer) -> Sign:
    while True:
        record = await consumer.getone()
        if sign := read_sign(record.key, record.value):
            return sign


async def test_a_worker_that_takes_long_for_one_step_keeps_its_partition(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Its successor would take as long for the same step, and lose the partition again."""
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "sitecustomize.py").write_text(_BLOCK)
    with patient(broker, tmp_path, failover_after_ms=1_000) as app:
        first, second = app.new_worker(shims), app.new_worker()
        await until_each_has_one(first, second)
        first.signal(signal.SIGURG)
        await until(lambda: "--- blocked" in first.log_text(), DEADLINE_S, "it is blocked")
        client, topic = app.worker_config.client_options(), app.worker_config.topic(Role.STATUS)
        async with AIOKafkaConsumer(**client) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_end()
            given: Counter[str] = Counter()
            async with asyncio.timeout(DEADLINE_S):
                while len(given) < 2 or min(given.values()) < 3 * SIGNS:
                    given[(await next_sign(consumer)).worker] += 1
            (shims / "go-on").touch()
            assert "gives no sign of life" not in second.log_text()
            first.stop()
            async with asyncio.timeout(DEADLINE_S):
                while (await next_sign(consumer)).is_alive:
                    pass
        assert "gives no sign of life" not in second.log_text()
