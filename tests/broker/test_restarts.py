"""What a restart keeps of transactions and of non-persistent messages (R81, R82)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from ringfaust.kafka.reader import read_whole
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import all_came_once, application, client_of
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka

NON_PERSISTENT = {
    "ringfaust_delivery_mode": "non_persistent",
    "body": "the body, and it is long enough",
}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    queues = {"q": {"consumer_timeout": 0}, "picky": {"consumer_timeout": 0}}
    addresses = {"prices": {"retroactive_count": 2, "subscriptions": {"all": None}}}
    with application(broker, tmp_path, queues, addresses=addresses) as app:
        yield app


@pytest.mark.parametrize("disk", ["kept", "lost"])
async def test_a_restart_keeps_a_prepared_transaction_and_rolls_back_an_open_one(
    app: Application, disk: str
) -> None:
    into = app.inputs[0]
    worker = app.new_worker()
    async with client_of(app) as client:
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
        worker.kill()
        if disk == "lost":
            worker.wipe()
        worker.start()

        counts = await client.counts("q")
        assert (counts["added"], counts["delivering"], counts["ready"]) == (3, 2, 1)
        assert (await client.say("commit", xid="y"))["reason"] == "bad_command"
        assert (await client.say("commit", xid="x"))["ok"]
        counts = await client.counts("q")
        assert (counts["added"], counts["acked"], counts["delivering"]) == (4, 1, 2)
        await client.say("detach", "q", consumer="me")
        assert sorted(await client.ready("q")) == ["B", "C", "E"]
        await all_came_once(app, client, "q")


async def test_a_restart_with_its_disk_loses_no_message(app: Application) -> None:
    worker = app.new_worker()
    async with client_of(app) as client:
        await client.send(app.inputs[0], ["volatile"], "q", **NON_PERSISTENT)
        await client.until_ready("q", "volatile")
        # The store gets a body right after its commit, and the next commit waits for that.
        # So the answer of a later commit shows that the store has the body.
        await client.counts("q")
        worker.kill()
        worker.start()
        await client.until_ready("q", "volatile")


async def test_non_persistent_messages_are_lost_with_the_disk_and_counted(app: Application) -> None:
    into = app.inputs[0]
    worker = app.new_worker()
    async with client_of(app) as client:
        await client.say("attach", "q", consumer="me", credit=1)
        await client.send(into, ["held"], "q", **NON_PERSISTENT)
        await client.send(into, ["waits"], "q", **NON_PERSISTENT, ringfaust_delay_ms="600000")
        await client.send(into, ["ready"], "q", **NON_PERSISTENT)
        await client.send(into, ["stays"], "q")
        await client.until_ready("q", "ready", "stays")
        bodies = [value for value in await changelog(app) if b"long enough" in value]
        assert bodies == [], "the changelog has the body of a non-persistent message"
        worker.kill()
        worker.wipe()
        worker.start()
        await client.say("resume", "q", what="dispatch")  # any command for the queue
        await client.until_ready("q", "stays")
        assert (await client.counts("q"))["lost"] == 2
        # The consumer may still ack its message, but without its body it cannot be redelivered.
        await client.say("recover", "q", consumer="me")
        counts = await client.counts("q")
        assert (counts["lost"], counts["delivering"]) == (3, 1)
        await all_came_once(app, client, "q")


async def changelog(app: Application) -> list[bytes]:
    values: list[bytes] = []
    client = {"bootstrap_servers": app.servers}
    topics = [app.topic("changelog")]
    await read_whole(client, topics, lambda some: values.extend(each.value or b"" for each in some))
    return values


async def test_an_address_keeps_its_messages_when_the_disk_is_lost(
    app: Application,
) -> None:
    into = app.inputs[0]
    worker = app.new_worker()
    async with client_of(app) as client:
        await client.send(into, ["p1", "p2", "p3"], "prices")
        await client.until_ready("prices::all", "p1", "p2", "p3")
        worker.kill()
        worker.wipe()
        worker.start()
        asked = {"address": "prices", "consumer": "ann", "credit": 9, "subscription": "mine"}
        assert (await client.say("subscribe", **asked))["ok"]
        assert (await dispatched_to(app, "ann", 2)) == ["p2", "p3"]
        await client.say("detach", "prices::mine", consumer="ann")
        await client.send(into, ["p4"], "prices")
        await client.until_ready("prices::mine", "p2", "p3", "p4")
        await all_came_once(app, client, "prices::all", "prices::mine")


async def dispatched_to(app: Application, consumer: str, count: int) -> list[str]:
    """The ids of the first messages dispatched to a consumer."""
    found: list[str] = []
    async with AIOKafkaConsumer(
        app.topic("dispatched"), bootstrap_servers=app.servers, auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as records:  # fmt: skip
        async for record in records:
            headers = dict(record.headers)
            if headers["ringfaust-consumer"] == consumer.encode():
                found.append(headers["ringfaust-id"].decode())
            if len(found) == count:
                return found
    raise AssertionError
