"""A worker whose clock does not agree with the brokers' lets no time act (R115)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.broker.clients import Client, client_of
from tests.broker.test_heard import first_event
from tests.chaos.harness import Application, Machine, until

pytestmark = pytest.mark.kafka

FIFTY_MINUTES_MS = 3_000_000
DEADLINE_S = 60
QUEUES = {"q": {}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "shims")


async def send(client: Client, app: Application, message: str, **fields: int) -> None:
    """Send a message with times, in ms, in its headers."""
    texts = {name: str(ms) for name, ms in fields.items()}
    await client.send(app.inputs[0], [message], "q", **texts)


async def test_a_worker_with_a_wrong_clock_does_not_start(
    app: Application, machine: Machine
) -> None:
    machine.set_ahead(FIFTY_MINUTES_MS)
    worker = app.new_worker(machine.shims)
    assert worker.wait(DEADLINE_S) != 0
    assert "3,000 s ahead of the brokers'" in worker.log_text()
    assert "clock_skew_max" in worker.log_text()
    assert "Traceback" not in worker.log_text()


async def test_a_clock_that_jumps_stops_time_until_it_agrees_again(
    app: Application, machine: Machine
) -> None:
    worker = app.new_worker(machine.shims)
    async with client_of(app) as client:
        await send(client, app, "first", ringfaust_ttl_ms=1)
        await first_event(app, event="expired", id="first")
        machine.set_ahead(FIFTY_MINUTES_MS)
        await until(lambda: "ahead of the brokers'" in worker.log_text(), DEADLINE_S, "an error")
        await send(client, app, "later", ringfaust_delay_ms=FIFTY_MINUTES_MS // 2)
        await send(client, app, "soon", ringfaust_ttl_ms=2_000, ringfaust_priority=1)
        async with asyncio.timeout(DEADLINE_S):  # commands do not wait for earlier messages
            while True:
                listed = (await client.say("list", "q"))["answer"]
                if (listed["scheduled"], listed["ready"]) == (["later"], ["soon"]):
                    break
                await asyncio.sleep(0.05)
        machine.set_ahead(0)
        await first_event(app, event="expired", id="soon")
        assert "agrees with the brokers' again" in worker.log_text()
        assert (await client.say("list", "q"))["answer"]["scheduled"] == ["later"]
