"""A configuration is applied under load, without a restart, at one position each (R128)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewPartitions

from ringfaust.client import RingConsumer
from ringfaust.kafka.admin import connected_admin
from ringfaust.protocol.lifecycle import WITHOUT_STEP
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import admin_of, records_of, run, two_workers
from tests.chaos.harness import Application, until
from tests.chaos.load import LONGEST_MS, QUEUES, Load
from tests.chaos.verdict import judge_stores, judge_topics, wait_until_read

pytestmark = pytest.mark.kafka

PARTITIONS = 4


def content(topic: str, ring_size: int, **more: Mapping[str, Any]) -> dict[str, Any]:
    ring = {**QUEUES["queues"]["ring.*"], "ring_size": ring_size}
    return {"routes": [{"topic": topic, "queue": "ring.{key}"}], "queues": {"ring.*": ring, **more}}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path, topic: str) -> Iterator[Application]:
    servers = broker.bootstrap_servers
    with Application(tmp_path / "app", servers, content(topic, 50), partitions=PARTITIONS) as app:
        yield app


async def events(app: Application) -> list[tuple[int, dict[str, Any]]]:
    """(partition, line) of the events topic, in order within each partition."""
    return [
        (each.partition, json.loads(line))
        for each in await records_of(app, "events")
        for line in each.value.split(b"\n")
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_two_workers_take_it_up_under_load_and_nothing_is_lost(
    app: Application, topic: str
) -> None:
    one, _ = await two_workers(app)
    load = Load(app, topic, seed=7, rate=100)
    await load.start()
    await until(lambda: load.settled > 100, 60, "consumers settle")

    app.write("queues.yaml", content(topic, 20, late={"ring_size": 2}, **{"more.#": {}}))
    assert "ring.*  ring_size: 50 -> 20" in await run(app, "diff", expect=1)
    shown = json.loads(await run(app, "apply", "--yes", "--json", "--by", "ann"))
    assert (shown["revision"], shown["partitions"], shown["waiting"]) == (1, [0, 1, 2, 3], [])
    assert "nothing differs from revision 1" in await run(app, "diff")
    settled = load.settled
    await until(lambda: load.settled > settled + 100, 60, "consumers still settle")

    # A worker with the older file uses what was applied, and says so.
    newer = (app.config_dir / "queues.yaml").read_text()
    app.write("queues.yaml", content(topic, 50))
    await app.stop(one)
    one.start()
    await until(one.has_connected, 60, "it runs again")
    assert "differs from revision 1, which ann applied" in one.log_text()
    settled = load.settled
    await until(lambda: load.settled > settled + 100, 60, "consumers settle")
    async with admin_of(app) as admin:
        used = await admin.configuration()
        assert [each.revision for each in used.values()] == [1] * PARTITIONS
        assert {each.settings["ring_size"] for each in await admin.homes("ring.device-1")} == {20}
        assert (await admin.queue("late")).settings["ring_size"] == 2
        await admin.configure("more.of.these", {"ring_size": 1})

    # And back, while the file still has something else.
    (app.config_dir / "queues.yaml").write_text(newer)
    assert "revision 2 is in effect in partitions 0-3" in await run(
        app, "apply", "--revision", "0", "--yes"
    )
    history = json.loads(await run(app, "history", "--json"))
    assert [each["revision"] for each in history] == [0, 1, 2]
    assert history[0]["configuration"] == history[2]["configuration"]

    await load.stop()
    await wait_until_read(app, 60)
    await asyncio.sleep(LONGEST_MS / 1000 + 0.5)  # every delay and time to live has passed
    assert await judge_topics(app) == []
    lines = await events(app)
    for number in range(PARTITIONS):
        mine = [line for partition, line in lines if partition == number]
        applied = [line for line in mine if line["event"] == "applied"]
        assert [(line["revision"], line["who"] == "ann") for line in applied] == [
            (1, True), (2, False),
        ]  # fmt: skip
        for line, size in zip(applied, (20, 50), strict=True):
            of_step = [
                each
                for each in mine
                if each["step"] == line["step"] and each["event"] not in WITHOUT_STEP
            ]
            assert {each["by"] for each in of_step} == {line["by"]}
            told = [each for each in of_step if each["event"] == "configured"]
            assert [each["queue"] for each in told] == sorted(each["queue"] for each in told)
            assert all(each["settings"] == {"ring_size": size} for each in told)
        first, second = (line["step"] for line in applied)
        for each in mine:
            if each["event"] == "evicted":
                size = 20 if first <= each["step"] < second else 50
                assert each["ring_size"] == size, f"one position in each partition: {each}"
    faults = [fault for worker in app.workers for fault in await app.stop(worker)]
    assert faults == []
    assert await judge_stores(app) == []


async def test_a_topic_that_begins_to_take_the_hop_waits_until_the_workers_are_stopped(
    app: Application, topic: str
) -> None:
    workers = await two_workers(app)
    more = content(topic, 50, late={})
    app.write("queues.yaml", more)
    await run(app, "apply", "--yes", in_a_process=True)
    app.write("queues.yaml", {**more, "routes": [{**more["routes"][0], "hop": "always"}]})
    assert "stop all workers, or the ring job, then apply" in await run(app, "diff", expect=1)
    refused = await run(app, "apply", "--yes", expect=2)
    assert f"records of {topic} would take the hop from now on" in refused
    assert "Traceback" not in refused
    for worker in workers:
        assert await app.stop(worker) == []
    assert "revision 2 is in the log" in await run(app, "apply", "--yes")
    app.write("queues.yaml", more)  # an older file: the log has the route
    app.new_worker()
    await until(app.workers[-1].has_connected, 60, "it runs")
    assert "differs from revision 2" in app.workers[-1].log_text()
    assert '"hop": "always"' in await run(app, "history", "--json")
    async with admin_of(app) as admin:
        for each in (await admin.configuration()).values():
            assert each.revision == 2
    assert yaml.safe_load((app.config_dir / "queues.yaml").read_text()) == more


async def test_partitions_that_are_added_begin_with_what_was_applied_last(
    app: Application, topic: str
) -> None:
    """What takes the hop waited there for ever: for a revision that is not in their log."""
    by_hop = content(topic, 50)
    by_hop["routes"][0]["hop"] = "always"
    app.write("queues.yaml", by_hop)
    worker = app.new_worker()
    await until(worker.has_connected, 60, f"{worker.name} runs")
    by_hop["queues"]["ring.*"]["ring_size"] = 20
    app.write("queues.yaml", by_hop)
    await run(app, "apply", "--yes", in_a_process=True)
    assert await app.stop(worker) == []
    async with connected_admin({"bootstrap_servers": app.servers}) as admin:
        ours = [each for each in await admin.list_topics() if each.startswith(app.topic(""))]
        await admin.create_partitions(
            {each: NewPartitions(6) for each in ours if each != app.topic("configuration")}
        )
    settings = yaml.safe_load((app.config_dir / "worker.yaml").read_text())
    app.write("worker.yaml", {**settings, "partitions": 6})
    worker.start()
    key = next(each for each in "abcdefgh" if partition_of(f"ring.{each}", 6) >= PARTITIONS)
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        await producer.send_and_wait(topic, b"body", key.encode())
    where = {"bootstrap_servers": app.servers, "application": app.worker_config.application}
    async with (
        asyncio.timeout(60),
        admin_of(app) as operator,
        RingConsumer(f"ring.{key}", credit=1, **where) as consumer,
    ):
        message = await anext(aiter(consumer))
        assert message.value == b"body"
        used = await operator.configuration()
        assert [each.revision for each in used.values()] == [1] * 6
        assert {each.settings["ring_size"] for each in await operator.homes(f"ring.{key}")} == {20}
    assert "nothing differs from revision 1" in await run(app, "diff")
