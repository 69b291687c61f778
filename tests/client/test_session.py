"""Sessions on a real worker and broker: sends and settles together or not at all (R80)."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.client import Session, SettleRefused
from tests.client.rig import DEADLINE_S, Rig, ids, take

pytestmark = pytest.mark.kafka


async def test_a_commit_takes_effect_as_one(rig: Rig) -> None:
    target = rig.a_queue("target")
    await rig.send("a", "b", "c")
    async with Session(**rig.where) as session:
        consumer = await session.consumer(rig.queue, credit=2)
        first, second = await take(consumer, 2)
        await first.ack()
        sent = await session.send(rig.to, first.value, **rig.for_queue(target))
        assert (await rig.listing())["delivering"] == {consumer.name: ["a", "b"]}
        assert (await rig.listing(target))["counts"]["added"] == 0
        with pytest.raises(SettleRefused):
            await first.ack()
        assert await session.commit(confirm=True) == []
        await rig.counts(target, added=1)
        assert (await rig.listing(target))["ready"] == [sent]
        (third,) = await take(consumer, 1)
        await second.reject("no")
        await third.release()
        await session.commit()
        await rig.counts(acked=1, dead=1)
        assert await session.commit() == []


async def test_a_rollback_gives_all_back(rig: Rig) -> None:
    target = rig.a_queue("target")
    await rig.send("a", "b", "c")
    async with Session(**rig.where) as session:
        consumer = await session.consumer(rig.queue)
        messages = await take(consumer, 2)
        await rig.counts(delivering=3)
        await messages[0].ack()
        await session.send(rig.to, "x", **rig.for_queue(target))
        await session.rollback()
        again = await take(consumer, 3)
        assert ids(again) == ["a", "b", "c"]
        assert [message.attempt for message in again] == [2, 2, 2]
        with pytest.raises(SettleRefused):
            await messages[1].ack()
        for message in again:
            await message.ack()
        await session.commit(confirm=True)
    counts = await rig.counts(acked=3)
    assert counts["messages"] == 0
    assert (await rig.listing(target))["counts"]["added"] == 0


async def test_an_exception_rolls_back(rig: Rig) -> None:
    await rig.send("a")

    async def work() -> None:
        async with Session(**rig.where) as session:
            (message,) = await take(await session.consumer(rig.queue), 1)
            await message.ack()
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await work()
    async with rig.consumer() as consumer:
        (message,) = await take(consumer, 1)
        assert (message.id, message.attempt, message.redelivered) == ("a", 2, True)


async def test_what_is_not_committed_is_dropped(rig: Rig) -> None:
    await rig.send("a")
    async with Session(**rig.where) as session:
        (message,) = await take(await session.consumer(rig.queue), 1)
        await message.ack()
    async with rig.consumer() as consumer:
        (message,) = await take(consumer, 1)
        assert (message.id, message.attempt) == ("a", 1)


async def test_client_acks_cover_the_whole_session(rig: Rig) -> None:
    """Of the queues of one partition: here it is one queue with two consumers."""
    await rig.send(*"abcd")
    async with Session(**rig.where) as session:
        one = await session.consumer(rig.queue, ack_mode="client", credit=2)
        two = await session.consumer(rig.queue, ack_mode="client", credit=2)
        firsts, seconds = await take(one, 2), await take(two, 2)
        await seconds[-1].ack()
        for message in (*firsts, seconds[0]):
            with pytest.raises(SettleRefused):
                await message.ack()
        await session.commit(confirm=True)
        await rig.counts(acked=4, messages=0)


async def test_queues_of_several_partitions(rig: Rig) -> None:
    """One Kafka transaction for all of them; a rollback is told to each."""
    first, second = rig.queues_apart()
    for queue in (first, second):
        await rig.send("a", queue=queue)
    async with Session(**rig.where) as session:
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
        await rig.counts(queue, acked=1, messages=0)


async def test_a_session_whose_consumer_was_silent_commits_nothing(rig: Rig) -> None:
    """What it held has gone to others: its acks would be refused, and the sends doubled."""
    queue, target = rig.a_queue("short"), rig.a_queue("target")
    await rig.send("a", queue=queue)
    async with Session(**rig.where) as session:
        silent = await session.consumer(queue, heartbeat_ms=4_000)
        (message,) = await take(silent, 1)
        await message.ack()
        await session.send(rig.to, "x", **rig.for_queue(target))
        async with rig.consumer(queue) as other:
            (again,) = await take(other, 1)
            assert (again.id, again.redelivered) == ("a", True)
            async with asyncio.timeout(DEADLINE_S):
                while not silent.losses:
                    await asyncio.sleep(0.05)
            with pytest.raises(SettleRefused, match="nothing was committed"):
                await session.commit()
            await session.rollback()
            await again.ack(confirm=True)
    assert (await rig.listing(target))["counts"]["added"] == 0
