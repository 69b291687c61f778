"""A consumer on a real worker and broker: messages, ack modes, settles and refusals."""

from __future__ import annotations

import asyncio

import pytest

from ringfaust.client import (
    BadArgument,
    ClientError,
    Closed,
    NoAnswer,
    Refused,
    RingConsumer,
    SettleRefused,
)
from tests.client.harness import DEADLINE_S, PARTITIONS, ClientHarness, ids, take

pytestmark = pytest.mark.kafka


# --- messages -----------------------------------------------------------------------------------


async def test_a_message_has_what_was_sent_and_its_delivery(harness: ClientHarness) -> None:
    async with harness.producer() as producer:
        sent = await producer.send(
            harness.to, "a dozen eggs", key="k", **harness.for_queue(), priority=9, group="g",
            ttl_ms=600_000, headers={"colour": "blue"}, properties={"size": 3},
        )  # fmt: skip
    async with harness.consumer() as consumer:
        (message,) = await take(consumer, 1)
        assert message.id == message.source == sent
        assert sent.startswith(f"{harness.to}/")
        assert (message.key, message.value) == (b"k", b"a dozen eggs")
        assert dict(message.headers) == {"colour": b"blue"}
        assert message.properties == {"size": 3}
        assert (message.queue, message.partition) == (harness.queue, consumer.partition)
        assert (message.priority, message.group, message.sequence) == (9, "g", 1)
        assert message.expires_at_ms == message.enqueued_ms + 600_000
        assert (message.attempt, message.handovers, message.redelivered) == (1, 1, False)
        assert "eggs" not in repr(message)
        await message.ack()
    await harness.counts(acked=1, messages=0)


async def test_the_loop_ends_when_the_consumer_is_closed(harness: ClientHarness) -> None:
    await harness.send("a", "b", "c")
    seen = []
    async with harness.consumer() as consumer:
        async for message in consumer:
            seen.append(message.id)
            await message.ack()
            if message.id == "c":
                closing = asyncio.create_task(consumer.close())
        await closing
    assert seen == ["a", "b", "c"]
    with pytest.raises(Closed):
        await consumer.receive()
    with pytest.raises(ClientError, match="was started before"):
        await consumer.start()


async def test_credit_limits_what_is_delivered(harness: ClientHarness) -> None:
    await harness.send(*"abcde")
    async with harness.consumer(credit=2) as consumer:
        first = await take(consumer, 2)
        assert (await harness.counts(delivering=2))["ready"] == 3
        await consumer.add_credit(1)
        assert ids(await take(consumer, 1)) == ["c"]
        await first[0].ack(confirm=True)
        assert ids(await take(consumer, 1)) == ["d"]
        with pytest.raises(Refused) as refused:
            await consumer.add_credit(100_000)
        assert refused.value.reason == "bad_command"


# --- ack modes ----------------------------------------------------------------------------------


async def test_mode_individual_settles_each_message_alone(harness: ClientHarness) -> None:
    await harness.send("a", "b", "c")
    async with harness.consumer() as consumer:
        first, second, third = await take(consumer, 3)
        await second.ack(confirm=True)
        assert (await harness.listing())["delivering"] == {consumer.name: ["a", "c"]}
        with pytest.raises(SettleRefused) as refused:
            await second.ack()
        assert (refused.value.reason, refused.value.about) == ("stale_delivery", "b")
        await first.ack()
        await third.ack()
        await harness.counts(acked=3)


async def test_mode_auto_acks_when_the_loop_takes_the_next_message(harness: ClientHarness) -> None:
    await harness.send("a", "b", "c")
    async with harness.consumer(ack_mode="auto") as consumer:
        async for message in consumer:
            if message.id == "c":
                break
    counts = await harness.counts(delivering=0)
    assert (counts["acked"], counts["ready"]) == (2, 1)


async def test_mode_client_acks_all_earlier_messages(harness: ClientHarness) -> None:
    await harness.send(*"abcd")
    async with harness.consumer(ack_mode="client") as consumer:
        messages = await take(consumer, 4)
        await messages[2].ack(confirm=True)
        assert (await harness.listing())["delivering"] == {consumer.name: ["d"]}
        with pytest.raises(SettleRefused):
            await messages[0].release()


async def test_mode_dups_ok_acks_ten_at_a_time(harness: ClientHarness) -> None:
    await harness.send(*(f"m{number}" for number in range(13)))
    async with harness.consumer(ack_mode="dups_ok", heartbeat_ms=60_000) as consumer:
        await take(consumer, 10)
        assert (await harness.listing())["counts"]["acked"] == 0
        await take(consumer, 3)
        counts = await harness.counts(acked=10)
        assert counts["delivering"] == 3
    counts = await harness.counts(delivering=0)  # the last one was not acked
    assert (counts["acked"], counts["ready"]) == (12, 1)


async def test_mode_dups_ok_collects_no_more_acks_than_its_credit(harness: ClientHarness) -> None:
    await harness.send(*"abcde")
    async with harness.consumer(ack_mode="dups_ok", credit=2, heartbeat_ms=60_000) as consumer:
        assert ids(await take(consumer, 5)) == list("abcde")


async def test_in_mode_none_a_delivery_settles_the_message(harness: ClientHarness) -> None:
    await harness.send(*"abc")
    async with harness.consumer(ack_mode="none", credit=1) as consumer:
        messages = await take(consumer, 3)
        await messages[0].ack()
        with pytest.raises(SettleRefused):
            await messages[0].release()
    await harness.counts(acked=3, messages=0)


# --- giving back --------------------------------------------------------------------------------


async def test_a_release_has_a_delay_and_a_reject_a_reason(harness: ClientHarness) -> None:
    await harness.send("a", "b")
    async with harness.consumer(credit=2) as consumer:
        first, second = await take(consumer, 2)
        await first.release(delay_ms=300_000, confirm=True)
        assert (await harness.listing())["scheduled"] == ["a"]
        await second.reject("no such customer", confirm=True)
        await harness.counts(dead=1, scheduled=1, delivering=0)
        with pytest.raises(BadArgument, match="delay_ms"):
            await second.release(delay_ms=-1)


async def test_a_released_message_is_redelivered(harness: ClientHarness) -> None:
    await harness.send("a")
    async with harness.consumer() as consumer:
        (first,) = await take(consumer, 1)
        await first.release()
        (again,) = await take(consumer, 1)
        assert (again.id, again.redelivered, again.attempt) == ("a", True, 2)
        with pytest.raises(SettleRefused):
            await first.ack()
        await again.ack(confirm=True)


async def test_recover_returns_all_deliveries(harness: ClientHarness) -> None:
    await harness.send(*"abc")
    async with harness.consumer() as consumer:
        (first,) = await take(consumer, 1)
        await harness.counts(delivering=3)  # two are dispatched and not yet received
        await consumer.recover()
        again = await take(consumer, 3)
        assert ids(again) == ["a", "b", "c"]
        assert all(message.redelivered for message in again)
        with pytest.raises(SettleRefused):
            await first.ack()
        for message in again:
            await message.ack()
    await harness.counts(acked=3)


async def test_a_message_held_at_the_end_counts_no_attempt(
    harness: ClientHarness,
) -> None:
    await harness.send("a", "b")
    async with harness.consumer() as consumer:
        await take(consumer, 1)
    async with harness.consumer() as consumer:
        messages = await take(consumer, 2)
    assert ids(messages) == ["a", "b"]
    assert [message.attempt for message in messages] == [1, 1]


async def test_a_message_held_at_an_exception_counts_an_attempt(harness: ClientHarness) -> None:
    await harness.send("a", "b")

    async def work() -> None:
        async with harness.consumer() as consumer:
            async for message in consumer:
                raise ArithmeticError(message.id)

    with pytest.raises(ArithmeticError):
        await work()
    async with harness.consumer() as consumer:
        messages = await take(consumer, 2)
    assert [(message.id, message.attempt) for message in messages] == [("a", 2), ("b", 1)]


# --- where a queue lives ------------------------------------------------------------------------


async def test_a_queue_of_a_key_is_found_where_its_messages_are(
    harness: ClientHarness,
) -> None:
    key = harness.key_in_another_partition_than_its_queue()
    async with harness.producer() as producer:
        await producer.send(harness.keyed, "boarding", key=key)
    await harness.counts(key=key, ready=1)
    async with harness.consumer(f"ring.{key}") as consumer:
        (message,) = await take(consumer, 1)
        assert message.key == key.encode()


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_consumer_that_attached_before_the_first_message_gets_it(
    harness: ClientHarness, is_known: bool
) -> None:
    """With the key it attaches in the right partition; otherwise it follows the first message."""
    key = harness.key_in_another_partition_than_its_queue()
    more = {"key": key} if is_known else {}
    async with harness.consumer(f"ring.{key}", **more) as consumer, harness.producer() as producer:
        await producer.send(harness.keyed, "boarding", key=key)
        (message,) = await take(consumer, 1)
        assert message.value == b"boarding"
        await message.ack(confirm=True)


async def test_the_partition_may_be_given(harness: ClientHarness) -> None:
    async with harness.consumer(partition=1) as consumer:
        assert consumer.partition == 1
    with pytest.raises(BadArgument, match="partition"):
        await harness.consumer(partition=PARTITIONS).start()


# --- refusals -----------------------------------------------------------------------------------


async def test_an_exclusive_queue_refuses_a_second_consumer(harness: ClientHarness) -> None:
    queue = harness.a_queue("one")
    async with harness.consumer(queue):
        with pytest.raises(Refused) as refused:
            await harness.consumer(queue).start()
    assert refused.value.reason == "consumer_limit"


async def test_a_name_in_use_is_refused(harness: ClientHarness) -> None:
    async with harness.consumer(name="me"):
        with pytest.raises(Refused, match="of that name is attached"):
            await harness.consumer(name="me").start()


async def test_without_a_worker_there_is_no_answer(harness: ClientHarness) -> None:
    async with harness.consumer(timeout_ms=DEADLINE_S * 1000) as consumer:
        consumer._connection.timeout_ms = 0  # so that none can come in time
        with pytest.raises(NoAnswer, match="check that one runs"):
            await consumer.recover()


async def test_a_wrong_application_is_reported_at_once(harness: ClientHarness) -> None:
    with pytest.raises(ClientError, match=r"there is no topic nobody\.replies"):
        await harness.consumer(application="nobody").start()


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"credit": -1}, "credit"),
        ({"credit": 100_001}, "credit"),
        ({"heartbeat_ms": 0}, "heartbeat_ms"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"ack_mode": "perhaps"}, "ack_mode"),
        ({"name": "x" * 250}, "consumer"),
        ({"address": "prices"}, "either a queue or an address"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_written(
    options: object, advice: str
) -> None:
    with pytest.raises(BadArgument, match=advice):
        RingConsumer("q", **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pririty"):
        RingConsumer("q", pririty=3)  # type: ignore[call-arg]
