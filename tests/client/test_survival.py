"""Consumers survive workers that die and move, broker outages, timeouts and their own death."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from ringfaust.client import Message, Refused, RingConsumer, SettleRefused
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.faust import remove_members
from tests.chaos.harness import Application, environment
from tests.client.harness import DEADLINE_S, ClientHarness, ids, new_application, take

pytestmark = pytest.mark.kafka

TIMEOUT_MS = 4_000
"""The consumer timeout of the queues of kind `short`."""


# --- workers ------------------------------------------------------------------------------------


@pytest.fixture
def own(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[ClientHarness]:
    """An application whose workers the test kills."""
    application = new_application(tmp_path, broker, batch_records=50)
    yield ClientHarness(application, "own")
    application.end()


async def consume(consumer: RingConsumer, count: int, seen: list[Message]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len(seen) < count:
            message = await consumer.receive()
            seen.append(message)
            await message.ack()


async def test_a_consumer_survives_a_killed_worker_and_a_new_one(own: ClientHarness) -> None:
    """Every message is delivered exactly once, and the consumer needs no help."""
    app = own.app
    first = app.new_worker()
    names = [f"m{number}" for number in range(400)]
    seen: list[Message] = []
    async with own.consumer(credit=20) as consumer:
        await own.send(*names[:200])
        await consume(consumer, 50, seen)
        first.kill()
        await own.send(*names[200:])
        await remove_members(app.servers, app.worker_config.application)
        second = app.new_worker()
        await consume(consumer, 150, seen)
        # All partitions move, in order, while messages are held.
        app.new_worker()
        second.stop()
        await consume(consumer, len(names), seen)
    assert ids(seen) == names
    assert not any(message.redelivered for message in seen)
    counts = await own.counts(acked=len(names))
    assert counts["messages"] == 0


@pytest.mark.slow
async def test_clients_survive_an_outage_of_the_brokers(tmp_path: Path) -> None:
    """Sends and settles wait for the brokers; producer and consumer then continue."""
    with EmbeddedBroker(tmp_path / "kafka") as broker:
        harness = ClientHarness(new_application(tmp_path, broker), "outage")
        harness.app.new_worker()
        try:
            # Shorter than the outage, which would otherwise have to last a minute.
            options = {"client_options": {"request_timeout_ms": 1_000}}
            async with (
                harness.producer(**options) as producer,
                harness.consumer(**options) as consumer,
            ):
                await producer.send(
                    harness.to, "x", id="before", partition=0, **harness.for_queue()
                )
                (message,) = await take(consumer, 1)
                broker.stop()
                sending = asyncio.create_task(
                    producer.send(
                        harness.to, "x", id="meanwhile", partition=0, **harness.for_queue()
                    )
                )
                settling = asyncio.create_task(message.ack(confirm=True))
                await asyncio.sleep(4)
                assert not sending.done()
                assert not settling.done()
                broker.start()
                async with asyncio.timeout(DEADLINE_S):
                    assert await sending == "meanwhile"
                    await settling
                (message,) = await take(consumer, 1)
                assert (message.id, message.redelivered) == ("meanwhile", False)
                await message.ack(confirm=True)
                broker.stop()
                async with asyncio.timeout(DEADLINE_S):  # closing must not wait for the brokers
                    await consumer.close()
                    await producer.close()
        finally:
            harness.app.end()


# --- timeouts -----------------------------------------------------------------------------------


async def test_a_consumer_that_timed_out_attaches_again_and_one_with_heartbeats_stays(
    harness: ClientHarness,
) -> None:
    queue = harness.queue
    await harness.send("long work", queue=queue)
    async with harness.consumer(queue, credit=1) as slow:
        (work,) = await take(slow, 1)
        await harness.send("a", queue=queue)
        async with harness.consumer(queue, credit=1, heartbeat_ms=2 * TIMEOUT_MS) as silent:
            (lost,) = await take(silent, 1)
            await harness.time_out(silent, TIMEOUT_MS)
            async with harness.consumer(queue, credit=1) as other:
                (again,) = await take(other, 1)
                assert (again.id, again.redelivered, again.attempt) == ("a", True, 2)
                # `slow` has been working for longer than the timeout, but sent heartbeats.
                assert slow.losses == 0
                await harness.send("b", queue=queue)
                (next_one,) = await take(silent, 1)  # it has attached again
                assert next_one.id == "b"
                with pytest.raises(SettleRefused) as refused:
                    await lost.ack()
                assert refused.value.reason == "stale_delivery"
                await work.ack(confirm=True)
                await next_one.ack()
                await again.ack()
                await harness.counts(queue, acked=3, messages=0)


async def test_a_refused_reattachment_is_reported(harness: ClientHarness) -> None:
    async with harness.connection() as connection:
        queue = f"made.{harness.queue}"
        await connection.request(1, {"type": "create_queue", "queue": queue})
        async with harness.consumer(queue, heartbeat_ms=1_000) as consumer:
            assert consumer.partition == 1
            await connection.request(1, {"type": "delete_queue", "queue": queue})
            with pytest.raises(Refused) as refused:
                await take(consumer, 1)
            assert refused.value.reason == "unknown_queue"
            with pytest.raises(Refused):
                await consumer.recover()


# --- death --------------------------------------------------------------------------------------

HOLDER = """
import asyncio, sys
from ringfaust.client import RingConsumer

async def main(servers, application, queue):
    where = {"bootstrap_servers": servers, "application": application}
    async with RingConsumer(queue, name="holder", heartbeat_ms=500, **where) as consumer:
        async for message in consumer:
            print(message.id, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_deliveries_of_a_killed_consumer_go_to_another(harness: ClientHarness) -> None:
    """They go after the timeout, and are marked as redelivered (R13, R24)."""
    queue = harness.a_queue("short")
    await harness.send(*"abcde", queue=queue)
    arguments = [harness.where["bootstrap_servers"], harness.where["application"], queue]
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments], stdout=subprocess.PIPE, env=environment()
    ) as holder:
        assert holder.stdout is not None
        held = [(await asyncio.to_thread(holder.stdout.readline)).decode().strip() for _ in "abcde"]
        holder.kill()
    assert held == list("abcde")
    async with harness.consumer(queue, name="other", heartbeat_ms=60_000) as other:
        messages = await take(other, 5)
        assert ids(messages) == held
        assert all(message.redelivered for message in messages)
        assert [message.attempt for message in messages] == [2] * 5
        for message in messages:
            await message.ack(confirm=True)
    lines = [line async for line in events(harness.app, other.partition, queue)]
    other_came = next(
        n for n, e in enumerate(lines) if (e["event"], e.get("consumer")) == ("attached", "other")
    )
    signs = [e for e in lines[:other_came] if "heartbeat" in e.values() or "holder" in e.values()]
    (gone,) = [line for line in lines if line["event"] == "detached" and line["timeout"]]
    again = [line for line in lines if line["event"] == "dispatched" and line["handovers"] == 2]
    assert gone["consumer"] == "holder"
    assert {line["time_ms"] for line in again} == {gone["time_ms"]}
    last_sign_ms = max(line["time_ms"] for line in signs if line["event"] in ("attached", "done"))
    assert gone["time_ms"] - last_sign_ms >= TIMEOUT_MS


async def events(app: Application, partition: int, queue: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the events so far of a queue, and those of executed commands."""
    reader = AIOKafkaConsumer(
        app.topic(Role.EVENTS), bootstrap_servers=app.servers, auto_offset_reset="earliest",
        isolation_level="read_committed",
    )  # fmt: skip
    async with reader:
        ends = await reader.end_offsets(reader.assignment())
        for place, end in ends.items():
            while place.partition == partition and await reader.position(place) < end:
                for records in (await reader.getmany(place, timeout_ms=200)).values():
                    for record in records:
                        for text in record.value.splitlines():
                            line = json.loads(text)
                            if line.get("queue", queue) == queue:
                                yield line
