"""What a restart keeps of transactions, addresses and non-persistent messages (R81, R82)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import (
    Client,
    all_came_once,
    application,
    client_of,
    lose_disk,
    reader_of,
    records_of,
)
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka

NON_PERSISTENT = {
    "ringfaust_delivery_mode": "non_persistent",
    "body": "the body, and it is long enough",
}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    queues = {name: {"consumer_timeout": 0} for name in ("q", "kept", "lost")}
    addresses = {"prices": {"retroactive_count": 2, "subscriptions": {"all": None}}}
    with application(broker, tmp_path, queues, addresses=addresses) as app:
        yield app


# Each of these prepares something, and looks at it after the restart.


async def transactions(app: Application, client: Client) -> AsyncIterator[None]:
    """One that is prepared is kept, and one that is open is rolled back."""
    into = app.inputs[0]
    await client.send(into, ["A", "B"], "q")
    await client.until_ready("q", "A", "B")
    await client.say("attach", "q", consumer="me", credit=2)
    for xid, acked, sent in (("x", "A", "C"), ("y", "B", "D")):
        assert (await client.say("begin", xid=xid, owner="me"))["ok"]
        ack = {"consumer": "me", "message": acked, "xid": xid, "owner": "me"}
        assert (await client.say("ack", "q", **ack))["ok"]
        await client.send(into, [sent], "q", ringfaust_xid=xid, ringfaust_xid_owner="me")
    await client.send(into, ["E"], "q")
    await client.until_ready("q", "E")
    assert (await client.say("prepare", xid="x"))["ok"]
    yield
    counts = await client.counts("q")
    assert (counts["added"], counts["delivering"], counts["ready"]) == (3, 2, 1)
    assert (await client.say("commit", xid="y"))["reason"] == "bad_command"
    assert (await client.say("commit", xid="x"))["ok"]
    counts = await client.counts("q")
    assert (counts["added"], counts["acked"], counts["delivering"]) == (4, 1, 2)
    await client.say("detach", "q", consumer="me")
    assert sorted(await client.ready("q")) == ["B", "C", "E"]


async def a_kept_body(app: Application, client: Client) -> AsyncIterator[None]:
    """With its disk, a worker has the bodies of non-persistent messages."""
    await client.send(app.inputs[0], ["volatile"], "kept", **NON_PERSISTENT)
    await client.until_ready("kept", "volatile")
    # The store gets a body right after its commit, and the next commit waits for that.
    # So the answer of a later commit shows that the store has the body.
    await client.counts("kept")
    yield
    await client.until_ready("kept", "volatile")


async def lost_bodies(app: Application, client: Client) -> AsyncIterator[None]:
    """Non-persistent messages are lost with the disk, and counted."""
    into = app.inputs[0]
    await client.say("attach", "lost", consumer="you", credit=1)
    await client.send(into, ["held"], "lost", **NON_PERSISTENT)
    await client.send(into, ["waits"], "lost", **NON_PERSISTENT, ringfaust_delay_ms="600000")
    await client.send(into, ["ready"], "lost", **NON_PERSISTENT)
    await client.send(into, ["stays"], "lost")
    await client.until_ready("lost", "ready", "stays")
    rows = await records_of(app, "changelog")
    bodies = [row for row in rows if b"long enough" in (row.value or b"")]
    assert bodies == [], "the changelog has the body of a non-persistent message"
    yield
    await client.say("resume", "lost", what="dispatch")  # any command for the queue
    await client.until_ready("lost", "stays")
    assert (await client.counts("lost"))["lost"] == 2
    # The consumer may still ack its message, but without its body it cannot be redelivered.
    await client.say("recover", "lost", consumer="you")
    counts = await client.counts("lost")
    assert (counts["lost"], counts["delivering"]) == (3, 1)


async def retained_messages(app: Application, client: Client) -> AsyncIterator[None]:
    """An address keeps its messages when the disk is lost."""
    into = app.inputs[0]
    await client.send(into, ["p1", "p2", "p3"], "prices")
    await client.until_ready("prices::all", "p1", "p2", "p3")
    yield
    asked = {"address": "prices", "consumer": "ann", "credit": 9, "subscription": "mine"}
    assert (await client.say("subscribe", **asked))["ok"]
    assert (await dispatched_to(app, "ann", 2)) == ["p2", "p3"]
    await client.say("detach", "prices::mine", consumer="ann")
    await client.send(into, ["p4"], "prices")
    await client.until_ready("prices::mine", "p2", "p3", "p4")


async def dispatched_to(app: Application, consumer: str, count: int) -> list[str]:
    """The ids of the first messages dispatched to a consumer."""
    found: list[str] = []
    async with reader_of(app, "dispatched") as records:
        async for record in records:
            headers = dict(record.headers)
            if headers["ringfaust-consumer"] == consumer.encode():
                found.append(headers["ringfaust-id"].decode())
            if len(found) == count:
                return found
    raise AssertionError


Part = Callable[[Application, Client], AsyncIterator[None]]


async def restarted(app: Application, *parts: Part, is_disk_lost: bool, queues: list[str]) -> None:
    """Prepare all parts, kill the worker once and start it, look at each part and the accounts."""
    worker = app.new_worker()
    async with client_of(app) as client:
        running = [part(app, client) for part in parts]
        for each in running:
            await anext(each)
        if is_disk_lost:
            await lose_disk(app, worker)
        else:
            worker.kill()
        worker.start()
        for each in running:
            await anext(each, None)
        await all_came_once(app, client, *queues)


async def test_a_restart_with_its_disk_loses_nothing(app: Application) -> None:
    parts = (transactions, a_kept_body)
    await restarted(app, *parts, is_disk_lost=False, queues=["q", "kept"])


async def test_a_restart_without_its_disk_loses_only_what_is_not_persistent(
    app: Application,
) -> None:
    parts = (transactions, lost_bodies, retained_messages)
    queues = ["q", "lost", "prices::all", "prices::mine"]
    await restarted(app, *parts, is_disk_lost=True, queues=queues)
