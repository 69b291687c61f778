"""Sessions on a real worker and broker: sends and settles together or not at all (R80)."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.client import Session, SettleRefused
from tests.client.harness import DEADLINE_S, ClientHarness, ids, take

pytestmark = pytest.mark.kafka


async def test_a_commit_takes_effect_as_a_whole(harness: ClientHarness) -> None:
    target = harness.a_queue("target")
    await harness.send("a", "b", "c")
    async with Session(**harness.where) as session:
        consumer = await session.consumer(harness.queue, credit=2)
        first, second = await take(consumer, 2)
        await first.ack()
        sent = await session.send(harness.to, first.value, **harness.for_queue(target))
        assert (await harness.listing())["delivering"] == {consumer.name: ["a", "b"]}
        assert (await harness.listing(target))["counts"]["added"] == 0
        with pytest.raises(SettleRefused):
            await first.ack()
        assert await session.commit(confirm=True) == []
        await harness.counts(target, added=1)
        assert (await harness.listing(target))["ready"] == [sent]
        (third,) = await take(consumer, 1)
        await second.reject("no")
        await third.release()
        await session.commit()
        await harness.counts(acked=1, dead=1)
        assert await session.commit() == []


async def test_a_rollback_returns_all_deliveries(harness: ClientHarness) -> None:
    target = harness.a_queue("target")
    await harness.send("a", "b", "c")
    async with Session(**harness.where) as session:
        consumer = await session.consumer(harness.queue)
        messages = await take(consumer, 2)
        await harness.counts(delivering=3)
        await messages[0].ack()
        await session.send(harness.to, "x", **harness.for_queue(target))
        await session.rollback()
        again = await take(consumer, 3)
        assert ids(again) == ["a", "b", "c"]
        assert [message.attempt for message in again] == [2, 2, 2]
        with pytest.raises(SettleRefused):
            await messages[1].ack()
        for message in again:
            await message.ack()
        await session.commit(confirm=True)
    counts = await harness.counts(acked=3)
    assert counts["messages"] == 0
    assert (await harness.listing(target))["counts"]["added"] == 0


async def test_an_exception_rolls_the_session_back(harness: ClientHarness) -> None:
    await harness.send("a")

    async def work() -> None:
        async with Session(**harness.where) as session:
            (message,) = await take(await session.consumer(harness.queue), 1)
            await message.ack()
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await work()
    async with harness.consumer() as consumer:
        (message,) = await take(consumer, 1)
        assert (message.id, message.attempt, message.redelivered) == ("a", 2, True)


async def test_what_is_not_committed_is_dropped(harness: ClientHarness) -> None:
    await harness.send("a")
    async with Session(**harness.where) as session:
        (message,) = await take(await session.consumer(harness.queue), 1)
        await message.ack()
    async with harness.consumer() as consumer:
        (message,) = await take(consumer, 1)
        assert (message.id, message.attempt) == ("a", 1)


async def test_an_ack_in_mode_client_covers_the_whole_session(harness: ClientHarness) -> None:
    """It covers all queues of a partition; here it is one queue with two consumers."""
    await harness.send(*"abcd")
    async with Session(**harness.where) as session:
        one = await session.consumer(harness.queue, ack_mode="client", credit=2)
        two = await session.consumer(harness.queue, ack_mode="client", credit=2)
        firsts, seconds = await take(one, 2), await take(two, 2)
        await seconds[-1].ack()
        for message in (*firsts, seconds[0]):
            with pytest.raises(SettleRefused):
                await message.ack()
        await session.commit(confirm=True)
        await harness.counts(acked=4, messages=0)


async def test_a_session_spans_queues_of_several_partitions(harness: ClientHarness) -> None:
    """A commit is one Kafka transaction; a rollback is sent to each partition."""
    first, second = harness.queues_apart()
    for queue in (first, second):
        await harness.send("a", queue=queue)
    async with Session(**harness.where) as session:
        consumers = [await session.consumer(queue) for queue in (first, second)]
        assert {consumer.partition for consumer in consumers} == {0, 1}
        for consumer in consumers:
            (message,) = await take(consumer, 1)
            await message.ack()
        await session.rollback()
        for consumer in consumers:
            (message,) = await take(consumer, 1)
            assert message.redelivered
            await message.ack()
        assert await session.commit(confirm=True) == []
    for queue in (first, second):
        await harness.counts(queue, acked=1, messages=0)


async def test_a_session_whose_consumer_timed_out_commits_nothing(harness: ClientHarness) -> None:
    """Others have its deliveries: its acks would be refused and its sends duplicated."""
    queue, target = harness.queue, harness.a_queue("target")
    await harness.send("a", queue=queue)
    async with Session(**harness.where) as session:
        silent = await session.consumer(queue, heartbeat_ms=4_000)
        (message,) = await take(silent, 1)
        await harness.time_out(silent)
        await message.ack()
        await session.send(harness.to, "x", **harness.for_queue(target))
        async with harness.consumer(queue) as other:
            (again,) = await take(other, 1)
            assert (again.id, again.redelivered) == ("a", True)
            async with asyncio.timeout(DEADLINE_S):
                while not silent.losses:
                    await asyncio.sleep(0.05)
            with pytest.raises(SettleRefused, match="nothing was committed"):
                await session.commit()
            await session.rollback()
            await again.ack(confirm=True)
    assert (await harness.listing(target))["counts"]["added"] == 0
