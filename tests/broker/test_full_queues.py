"""Full queues with a real worker and broker: what waits, what passes, what is refused (R60–R62)."""

from __future__ import annotations

import pytest

from tests.broker.clients import DEADLINE_S, all_came_once, client_of, lose_disk, queues_of, some
from tests.chaos.harness import Application, until

pytestmark = pytest.mark.kafka

QUEUES = {
    "slow": {"max_messages": 3, "when_full": "block", "consumer_timeout": 0},
    "fast": {},
    "strict": {"max_messages": 1, "when_full": "reject_newest", "max_message_bytes": 30},
}


async def test_messages_for_a_full_queue_wait_and_none_is_lost(app: Application) -> None:
    into, side, _ = app.inputs
    worker = app.new_worker()
    ids = some("s", 9)
    async with client_of(app) as client:
        await client.send(into, ids, "slow")
        await client.send(into, ["behind"], "fast")
        await client.send(side, ["beside"], "fast")
        await client.until_ready("slow", *ids[:3])
        await client.until_ready("fast", "beside")
        pulled = [
            (await client.say("list", queue))["answer"]["pulled"] for queue in ("slow", "fast")
        ]
        assert pulled == [False, True]
        assert worker.stop() == 0

        worker.start()
        await client.until_ready("slow", *ids[:3])
        await client.say("attach", "slow", consumer="me", credit=1)
        assert (await client.say("ack", "slow", consumer="me", message="s0"))["ok"]
        await client.until_ready("slow", "s2", "s3")
        await lose_disk(app, worker)

        worker.start()
        for message in ids[1:7]:
            assert (await client.say("ack", "slow", consumer="me", message=message))["ok"]
        await client.until_ready("fast", "beside", "behind")
        assert await client.ready("slow") == ["s8"]
        await all_came_once(app, client, "slow", "fast")
    place = f"{into}, partition 0:"
    assert f"{place} paused at offset 3: queue 'slow' is full" in worker.log_text()
    assert f"{place} resumed at offset 3: queue 'slow' accepts messages again" in worker.log_text()


async def test_a_refused_send_gets_a_reply(running: Application) -> None:
    into = running.inputs[0]
    async with client_of(running) as client:
        await client.send(into, ["first", "second"], "strict")
        reply = await client.reply_to("second")
        assert (reply["ok"], reply["reason"]) == (False, "queue_full")
        assert (reply["queue"], reply["by"]) == ("strict", f"{into}/0/1")
        await client.send(into, ["long"], "strict", a_header_of_mine="longer than all else")
        assert (await client.reply_to("long"))["reason"] == "too_large"
        await client.send(into, ["astray"], "nowhere")
        assert (await client.reply_to("astray"))["reason"] == "unknown_queue"
        counts = await client.counts("strict")
        assert (counts["added"], counts["refused"], counts["dead"]) == (1, 2, 0)
        await all_came_once(running, client, *await queues_of(running))


async def test_lifting_a_limit_lets_the_waiting_messages_in(running: Application) -> None:
    (worker,) = running.workers
    ids = some("s", 50)
    async with client_of(running) as client:
        await client.send(running.inputs[1], ids, "slow")
        await until(
            lambda: "'slow' is full" in worker.log_text(), DEADLINE_S, "the topic is paused"
        )
        await client.say("configure", "slow", settings={"max_messages": -1})
        await client.until_ready("slow", *ids)
