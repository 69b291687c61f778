"""An application moves to another cluster with mirrored topics (R111, ADR 57)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from ringfaust.config import load
from ringfaust.kafka.mirrored_state import StateEnd, begin_at, state_ends
from ringfaust.kafka.reader import read_to_end
from ringfaust.protocol.stored_rows import (
    INPUTS_KEY,
    POSITIONS_KEY,
    InputState,
    write_inputs,
    write_positions,
)
from ringfaust.testing.accounts.prove import prove
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import Client, client_of, records_of, run, some
from tests.chaos.harness import Application
from tests.chaos.verdict import wait_until_read

pytestmark = pytest.mark.kafka

PARTITIONS = 2
QUEUES = {"q": {"ring_size": -1}, "far": {"ring_size": -1}, "small": {"ring_size": 3}}
OWN = ("control", "hop", "dispatched", "evicted", "dead", "events", "replies", "changelog")


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    """A topic that is read directly, and one whose records take the hop."""
    routes = [
        {"topic": "in", "queue": "{header:to}", "hop": "never"},
        {"topic": "spread", "queue": "{header:to}", "hop": "always"},
    ]
    content = {"routes": routes, "queues": QUEUES}
    with Application(
        tmp_path / "app", broker.bootstrap_servers, content, partitions=PARTITIONS,
        session_timeout_ms=6_000,
    ) as app:  # fmt: skip
        yield app


async def mirror(app: Application, source_at: str) -> dict[str, int]:
    """Copy all topics from another cluster, as MirrorMaker 2 does: records, and not offsets.

    Args:
        app: whose topics.
        source_at: the other cluster.

    Returns:
        By topic, how many offsets the copies have less.
    """
    less: dict[str, int] = {}
    source = AIOKafkaConsumer(bootstrap_servers=source_at, isolation_level="read_committed")
    async with source, AIOKafkaProducer(bootstrap_servers=app.servers) as target:
        for topic in (*app.inputs, *map(app.topic, OWN)):
            tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            source.assign(tps)
            await source.seek_to_beginning(*tps)
            ends = await source.end_offsets(tps)
            found = [each async for some in read_to_end(source, ends) for each in some]
            less[topic] = sum(ends.values()) - len(found)
            for record in found:
                await target.send(
                    topic, record.value, record.key, partition=record.partition,
                    timestamp_ms=record.timestamp, headers=[*record.headers],
                )  # fmt: skip
            await target.flush()
    return less


def move_to(app: Application, servers: str) -> None:
    """Have all commands and workers from now on use another cluster."""
    text = (app.config_dir / "worker.yaml").read_text().replace(app.servers, servers)
    (app.config_dir / "worker.yaml").write_text(text)
    app.servers = servers
    app.worker_config, _ = load(app.config_dir)


async def used(client: Client) -> dict[str, Any]:
    """Fill the queues, and settle some. Returns what they hold."""
    await client.send("in", some("a", 20), "q", "small")
    await client.send("spread", some("s", 10), "far")
    home = await home_of(client, "far", 10)
    await client.until_ready("q", *some("a", 20)[::2])
    await client.say("attach", "q", consumer="c", credit=3)
    await client.say("purge", "q")
    await client.send("in", some("b", 5), "q")
    await client.until_ready("q", *some("b", 5))
    return await held(client, home)


async def home_of(client: Client, queue: str, count: int) -> int:
    """The partition with a queue, once it has so many messages."""
    async with asyncio.timeout(60):
        while True:
            for number in range(PARTITIONS):
                if len(await client.ready(queue, number)) == count:
                    return number


async def held(client: Client, home: int) -> dict[str, Any]:
    places = {"q": 0, "small": 0, "far": home}
    answers = {name: await client.say("list", name, at, limit=1_000) for name, at in places.items()}
    return {name: each["answer"] for name, each in answers.items()}


def as_text(answers: dict[str, Any]) -> str:
    """All but how long consumers have been silent. As text, an error shows what differs."""
    text = json.dumps(answers, indent=1, sort_keys=True)
    return "\n".join(line for line in text.splitlines() if '"silent_ms":' not in line)


async def test_what_a_transaction_that_was_cut_off_has_changed_is_taken_back(
    app: Application,
) -> None:
    client, changelog = app.worker_config.client_options(), app.topic("changelog")
    positions, inputs = (
        write_positions({"in": 7, "gone": 9}),
        write_inputs({"in": InputState("old", 2), "gone": InputState("old", 1)}),
    )
    mirrored = [
        (b"1", b"first"), (b"2", b"gone"), (b"2", None), (POSITIONS_KEY, positions),
        (INPUTS_KEY, inputs), (b"1", b"second"), (b"2", b"new"), (b"3", b"new"),
    ]  # fmt: skip
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        for key, value in mirrored:
            await producer.send_and_wait(changelog, value, key, partition=1)
    (end,) = (await state_ends(client, changelog, [1])).values()
    assert end.torn == {b"1": b"first", b"2": None, b"3": None}
    assert end.is_moved({"in": "new"}) and not end.is_moved({"in": "old"})
    name = app.worker_config.application
    await begin_at(client, name, changelog, 1, end=end, positions={"in": 5}, ids={"in": "new"})
    (now,) = (await state_ends(client, changelog, [1])).values()
    assert now == StateEnd({"in": 5}, {"in": InputState("new", 2)}, {}, is_of_job=False)
    rows = {record.key: record.value for record in await records_of(app, "changelog")}
    assert (rows[b"1"], rows[b"2"], rows[b"3"]) == (b"first", None, None)


async def test_a_moved_application_goes_on_with_the_same_state_and_each_message_once(
    app: Application, tmp_path: Path
) -> None:
    worker = app.new_worker()
    async with client_of(app) as client:
        before = await used(client)
        await wait_until_read(app, 60)
    assert await app.stop(worker) == []
    with EmbeddedBroker() as other:
        source = app.servers
        move_to(app, other.bootstrap_servers)
        app.create_topics()
        less = await mirror(app, source)
        assert less[app.topic("changelog")] and less[app.topic("hop")], "offsets are the same"
        refused = app.new_worker()
        assert await asyncio.to_thread(refused.wait, 60) == 2
        assert "was written in another cluster" in refused.log_text()
        assert "ringfaust restore" in refused.log_text()
        assert "Traceback" not in refused.log_text()

        shown = await run(app, "restore", expect=2)
        assert "spread" in shown and "--yes" in shown
        assert "offsets 0 to 25" in await run(app, "restore", "--at", "in/0=26", expect=2)
        assert "no input" in await run(app, "restore", "--at", "nowhere/0=1", expect=2)
        assert "TOPIC/PARTITION=OFFSET" in await run(app, "restore", "--at", "in", expect=2)
        assert "restored partitions 0, 1" in await run(app, "restore", "--yes", in_a_process=True)
        assert "nothing to restore" in await run(app, "restore", "--yes")

        app.new_worker()
        async with client_of(app) as client:
            home = await home_of(client, "far", 10)
            assert as_text(await held(client, home)) == as_text(before)
            assert "workers" in await run(app, "restore", "--yes", expect=2)
            await client.send("in", some("c", 5), "q")
            await client.send("spread", some("t", 5), "far")
            await client.until_ready("q", *some("b", 5), *some("c", 5))
            await home_of(client, "far", 15)
            await wait_until_read(app, 60)
            after = await held(client, home)
            proof = await prove(app.worker_config, app.inputs, after)
            assert proof.balanced, proof.problems()
        app.end()
