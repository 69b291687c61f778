"""Consumers that send heartbeats stay attached, whatever is between them and the worker (R110)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import DEADLINE_S, Client, application, client_of, reader_of
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka

TIMEOUT_MS = 3_000
LONGER_S = 5.0
"""Longer than the timeout, and than the pause between answers that hides no outage."""


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    queues: dict[str, Any] = {"q": {"consumer_timeout": TIMEOUT_MS, "max_attempts": 1}, "clock": {}}
    with application(broker, tmp_path, queues) as app:
        app.new_worker()
        yield app


@asynccontextmanager
async def heartbeats(app: Application, consumer: str) -> AsyncIterator[None]:
    """Send a heartbeat every half second, as a client does that waits for no answer."""
    value = json.dumps({"type": "heartbeat", "queue": "q", "consumer": consumer}).encode()

    async def beat() -> None:
        while True:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                await producer.send(app.topic("control"), value, partition=0)
            await asyncio.sleep(TIMEOUT_MS / 6_000)

    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait({beating})


async def attach_both(app: Application, client: Client) -> None:
    """Two consumers, each with a message; only `lively` will send heartbeats."""
    for consumer, message in (("lively", "A"), ("silent", "B")):
        assert (await client.say("attach", "q", consumer=consumer, credit=1))["ok"]
        await client.send(app.inputs[0], [message], "q")
    async with asyncio.timeout(DEADLINE_S):
        while (await client.counts("q"))["delivering"] < 2:
            await asyncio.sleep(0.05)


async def first_event(app: Application, **wanted: object) -> None:
    """Wait for an event with these fields. No event may detach `lively` before."""
    async with reader_of(app, "events") as events, asyncio.timeout(DEADLINE_S):
        async for record in events:
            for line in (record.value or b"").splitlines():
                event = json.loads(line)
                gone = {"event": "detached", "consumer": "lively"}
                assert not gone.items() <= event.items(), event
                if wanted.items() <= event.items():
                    return


async def test_an_open_transaction_of_another_client_detaches_nobody(app: Application) -> None:
    """R110: heartbeats stand behind it in the log. Silence counts again once it has ended."""
    other = AIOKafkaProducer(bootstrap_servers=app.servers, transactional_id=f"{app.folder}")
    async with client_of(app) as client, heartbeats(app, "lively"), other:
        await attach_both(app, client)
        await other.begin_transaction()
        await other.send_and_wait(app.topic("control"), b"{}", partition=0)
        # Messages still expire, which shows that the timeout has passed.
        await client.send(
            app.inputs[0], ["late"], "clock", ringfaust_ttl_ms=str(int(LONGER_S * 1000))
        )
        await first_event(app, event="expired", id="late")
        await other.abort_transaction()
        await first_event(app, event="detached", consumer="silent", timeout=True)
        assert (await client.say("ack", "q", consumer="lively", message="A"))["ok"]


async def test_an_outage_of_the_broker_detaches_nobody(
    app: Application, broker: EmbeddedBroker
) -> None:
    """R110: nobody could send a heartbeat meanwhile. Silence counts again after the outage."""
    async with client_of(app) as client, heartbeats(app, "lively"):
        await attach_both(app, client)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(LONGER_S)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        await first_event(app, event="detached", consumer="silent", timeout=True)
        assert (await client.say("ack", "q", consumer="lively", message="A"))["ok"]
