"""Options of a consumer: selectors, credit in bytes and subscriptions, on a real worker."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.client import Refused, RingConsumer
from tests.client.harness import DEADLINE_S, ClientHarness, ids, take

pytestmark = pytest.mark.kafka


async def sizes(harness: ClientHarness, queue: str, *given: int) -> None:
    """Send a message of each size, with the size as a property."""
    async with harness.producer() as producer:
        for size in given:
            await producer.send(
                harness.to, "x" * size, id=f"s{size}", partition=0, properties={"size": size},
                **harness.for_queue(queue),
            )  # fmt: skip


async def test_a_selector_takes_what_it_matches(harness: ClientHarness) -> None:
    await sizes(harness, harness.queue, 1, 20, 3, 40)
    async with harness.consumer(selector="size > 10") as large:
        assert ids(await take(large, 2)) == ["s20", "s40"]
        async with harness.consumer(selector="NOT (size > 10)") as small:
            assert ids(await take(small, 2)) == ["s1", "s3"]


async def test_an_invalid_selector_is_refused(harness: ClientHarness) -> None:
    with pytest.raises(Refused) as refused:
        await harness.consumer(selector="size >").start()
    assert refused.value.reason == "bad_selector"


async def test_credit_in_bytes_limits_what_is_held(harness: ClientHarness) -> None:
    await sizes(harness, harness.queue, 1000, 1001, 1002)
    async with harness.consumer(credit_bytes=1_500) as consumer:
        first, _ = await take(consumer, 2)  # the second one exceeds the credit
        assert (await harness.counts(delivering=2))["ready"] == 1
        await first.ack()
        assert ids(await take(consumer, 1)) == ["s1002"]


async def test_a_durable_subscription_outlives_its_consumer(harness: ClientHarness) -> None:
    address = "q.many.durable"
    ann = {"address": address, "subscription": "ann", "client": "desk", "heartbeat_ms": 500}
    async with RingConsumer(**harness.where, **ann) as consumer:
        assert consumer.queue == f"{address}::desk.ann"
        await harness.send("a", queue=address)
        (message,) = await take(consumer, 1)
        assert (message.id, message.queue) == ("a", consumer.queue)
        await message.ack(confirm=True)
        with pytest.raises(Refused) as refused:
            await RingConsumer(**harness.where, **ann).start()
        assert refused.value.reason == "consumer_limit"
    await harness.send("b", queue=address)
    async with RingConsumer(**harness.where, **ann) as consumer:
        assert ids(await take(consumer, 1)) == ["b"]


async def test_each_subscription_gets_a_copy_that_its_consumers_share(
    harness: ClientHarness,
) -> None:
    address = "q.many.copies"
    to = {**harness.where, "address": address, "heartbeat_ms": 500}
    async with (
        RingConsumer(**to) as alone,
        RingConsumer(**to, subscription="all", shared=True, credit=1) as one,
        RingConsumer(**to, subscription="all", shared=True, credit=1) as two,
    ):
        await harness.send("a", "b", queue=address)
        assert ids(await take(alone, 2)) == ["a", "b"]
        assert ids(await take(one, 1)) == ["a"]
        assert ids(await take(two, 1)) == ["b"]
        # It attaches later, and gets what the address has kept.
        async with RingConsumer(**to) as late:
            assert ids(await take(late, 2)) == ["a", "b"]


async def test_a_subscription_that_was_ended_starts_again(harness: ClientHarness) -> None:
    to = {**harness.where, "address": "q.many.silent"}
    async with RingConsumer(**to) as consumer:
        async with harness.connection() as connection:
            who = {"queue": consumer.queue, "consumer": consumer.name}
            await connection.request(consumer.partition, {"type": "detach", **who})
        async with asyncio.timeout(DEADLINE_S):
            while not consumer.losses:
                await asyncio.sleep(0.05)
        await harness.send("a", queue=to["address"])
        assert ids(await take(consumer, 1)) == ["a"]


async def test_an_unknown_address_is_refused(harness: ClientHarness) -> None:
    with pytest.raises(Refused) as refused:
        await RingConsumer(**harness.where, address="nowhere", subscription="ann").start()
    assert refused.value.reason == "unknown_queue"
