"""Routes and their topics take effect under load, without a restart (R128, R113)."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ringfaust.config import load as load_config
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker import clients
from tests.broker.clients import admin_of, two_workers
from tests.chaos.harness import Application, until
from tests.chaos.load import KEYS as RINGS
from tests.chaos.load import LONGEST_MS, QUEUES, Load
from tests.chaos.verdict import judge_stores, judge_topics, wait_until_read

pytestmark = pytest.mark.kafka

PARTITIONS = 4
PULSE_S = 0.05
KEYS = [f"k{number}" for number in range(16)]
run = partial(clients.run, in_a_process=True, seconds=240)


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path, topic: str) -> Iterator[Application]:
    content = queues({topic: "ring.{key}"})
    servers = broker.bootstrap_servers
    with Application(tmp_path / "app", servers, content, partitions=PARTITIONS) as app:
        yield app


def queues(routes: dict[str, str]) -> dict[str, Any]:
    """A queues.yaml; `routes`: the queue of each topic."""
    declared = {**QUEUES["queues"], "keyed.*": {"ring_size": -1}, "named": {"ring_size": -1}}
    found = [{"topic": name, "queue": queue} for name, queue in routes.items()]
    return {"routes": found, "queues": declared}


async def apply(app: Application, routes: dict[str, str], *, expect: int = 0) -> str:
    """Put routes into effect. Returns what that prints."""
    app.write("queues.yaml", queues(routes))
    return await run(app, "apply", "--yes", "--by", "ann", expect=expect)


async def send(app: Application, topic: str, values: Sequence[str]) -> None:
    """Send records with their values as keys."""
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value.encode(), value.encode())


async def added(app: Application, *patterns: str) -> dict[str, int]:
    """How many messages the queues have received."""
    found: Counter[str] = Counter()
    async with admin_of(app) as each:
        for pattern in patterns:
            for queue in await each.queues(pattern):
                found[queue.queue] += queue.counts["added"]
    return dict(found)


async def await_added(app: Application, wanted: dict[str, int]) -> None:
    """Wait until the queues have received so many messages; fail if it is more."""
    deadline_s = time.monotonic() + 60
    while (found := await added(app, "keyed.#", "named")) != wanted:
        assert time.monotonic() < deadline_s, found
        assert all(found.get(name, 0) <= count for name, count in wanted.items()), found
        await asyncio.sleep(0.1)


@asynccontextmanager
async def silences(app: Application, topic: str) -> AsyncIterator[dict[int, float]]:
    """Send to each partition 20 records a second. Notes the longest time without events, in s."""
    longest: dict[int, float] = {}
    heard: dict[int, float] = {}
    rings = {partition_of(key, PARTITIONS): key.encode() for key in RINGS}

    async def pulse(producer: AIOKafkaProducer) -> None:
        while True:
            for key in rings.values():
                await producer.send(topic, b"pulse", key)
            await asyncio.sleep(PULSE_S)

    async def watch(consumer: AIOKafkaConsumer) -> None:
        while True:
            fetched = await consumer.getmany(timeout_ms=50)
            now_s = time.monotonic()
            for tp in fetched:
                gap_s = now_s - heard.get(tp.partition, now_s)
                longest[tp.partition] = max(longest.get(tp.partition, 0), round(gap_s, 2))
                heard[tp.partition] = now_s

    async with (
        AIOKafkaProducer(bootstrap_servers=app.servers) as producer,
        AIOKafkaConsumer(
            app.topic("events"), bootstrap_servers=app.servers, isolation_level="read_committed"
        ) as consumer,
    ):
        running = [asyncio.ensure_future(work) for work in (pulse(producer), watch(consumer))]
        try:
            yield longest
        finally:
            for each in running:
                each.cancel()
            await asyncio.wait(running)


async def settles_more(load: Load) -> None:
    settled = load.settled
    await until(lambda: load.settled > settled + 100, 60, "consumers settle")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_two_workers_take_routes_up_under_load_and_nothing_is_lost(
    app: Application, topic: str
) -> None:
    keyed, named = f"{topic}-keyed", f"{topic}-named"
    base = {topic: "ring.{key}"}
    more = {**base, keyed: "keyed.{key}", named: "named"}
    one, two = await two_workers(app)
    load = Load(app, topic, seed=7, rate=50)
    await load.start()
    await settles_more(load)
    async with silences(app, topic) as longest:
        for _ in range(5):
            await settles_more(load)
        print("steady silence of each partition, in s:", longest)
        longest.clear()
        await add_routes(app, more, keyed, named)
        await settles_more(load)
        print("longest silence of each partition during new routes, in s:", longest)

    # A third worker with the older file, while another one is killed.
    app.write("queues.yaml", queues(base))
    three = app.new_worker()
    await until(three.has_connected, 60, "the third worker runs")
    assert "differs from revision 1, which ann applied" in three.log_text()
    one.kill()
    await send_and_await(app, keyed, named, 3)

    # Routes that are removed, just before a worker is killed.
    async with silences(app, topic) as longest:
        assert "revision 2 is in effect" in await apply(app, base)
        print("longest silence of each partition during removed routes, in s:", longest)
    two.kill()
    two.start()
    for each in (keyed, named):
        await send(app, each, KEYS)
    await settles_more(load)
    await until(two.has_connected, 60, "it runs again")
    assert await added(app, "named") == {"named": 48}
    assert {*(await added(app, "keyed.#")).values()} == {3}
    await refuse_moves(app, {**base, keyed: "keyed.{header:x}"})

    # The routes come back, and nothing of what was sent meanwhile is lost or doubled.
    assert "revision 3 is in effect" in await apply(app, more)
    await await_added(app, keyed_and_named(4))
    await load.stop()
    app.queues_config = load_config(app.config_dir)[1]
    await wait_until_read(app, 60)
    async with admin_of(app) as operator:  # the judge counts what has left these queues
        for name in keyed_and_named(4):
            await operator.purge(name)
    await asyncio.sleep(LONGEST_MS / 1000 + 0.5)  # every delay and time to live has passed
    assert await judge_topics(app) == []
    async with admin_of(app) as operator:
        used = await operator.configuration()
        assert {found.revision for found in used.values()} == {3}
    faults = [fault for worker in (two, three) for fault in await app.stop(worker)]
    assert faults == []
    assert await judge_stores(app) == []


def keyed_and_named(count: int) -> dict[str, int]:
    """What the queues have received, after each key was sent so often to both topics."""
    return {**{f"keyed.{key}": count for key in KEYS}, "named": count * len(KEYS)}


async def send_and_await(app: Application, keyed: str, named: str, count: int) -> None:
    for each in (keyed, named):
        await send(app, each, KEYS)
    await await_added(app, keyed_and_named(count))


async def add_routes(app: Application, more: dict[str, str], keyed: str, named: str) -> None:
    """Apply new routes, one of them through the hop. Their topics have records already."""
    refused = await apply(app, more, expect=2)
    assert f"{named}, which a route of queues.yaml reads, does not exist" in refused
    assert "nothing was applied yet" in await run(app, "history")
    await run(app, "topics", "create")
    for each in (keyed, named):
        await send(app, each, KEYS)
    assert "revision 1 is in effect in partitions 0-3" in await apply(app, more)
    await send_and_await(app, keyed, named, 2)


async def refuse_moves(app: Application, routes: dict[str, str]) -> None:
    """A route that would move queues with messages is refused as a whole, with a list."""
    refused = await apply(app, routes, expect=2)
    moved = [
        f"'keyed.{key}' (3 messages, to partition {partition_of(f'keyed.{key}', PARTITIONS)})"
        for key in KEYS
        if partition_of(key, PARTITIONS) != partition_of(f"keyed.{key}", PARTITIONS)
    ]
    assert any(text in refused for text in moved), refused
    assert "Consume, move or purge their messages" in refused
    shown = json.loads(await run(app, "history", "--json"))
    assert [each["revision"] for each in shown] == [0, 1, 2]
