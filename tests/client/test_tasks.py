"""Several tasks that share a client, and tasks that are cancelled at an awkward moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ringfaust.client import Closed, RingConsumer, RingProducer, Session
from ringfaust.client.attachment import Attachment
from ringfaust.client.connection import ConnectOptions
from ringfaust.client.transactions import ClientTransactions
from ringfaust.testing import MemoryBroker


async def send(where: ConnectOptions, *values: str) -> None:
    async with RingProducer(**where) as producer:
        for value in values:
            await producer.send("orders", value, id=value)


# --- transactions --------------------------------------------------------------------------------


async def test_another_tasks_send_takes_no_part_in_a_transaction(
    memory: MemoryBroker, where: ConnectOptions
) -> None:
    async with RingProducer(**where) as producer:
        begun, sent = asyncio.Event(), asyncio.Event()

        async def fails() -> None:
            async with producer.transaction():
                await producer.send("orders", "a")
                begun.set()
                await sent.wait()
                raise ArithmeticError

        failing = asyncio.create_task(fails())
        await begun.wait()
        async with producer.transaction():  # its own
            await producer.send("invoices", "b")
        await producer.send("invoices", "c")
        sent.set()
        with pytest.raises(ArithmeticError):
            await failing
    assert (memory.counts("orders").added, memory.counts("invoices").added) == (0, 2)


async def test_tasks_of_the_block_take_part_until_it_ends(
    memory: MemoryBroker, where: ConnectOptions
) -> None:
    async with RingProducer(**where) as producer:
        ended = asyncio.Event()

        async def late() -> None:
            await producer.send("orders", "a")
            await ended.wait()
            await producer.send("invoices", "b")

        with pytest.raises(ArithmeticError):
            async with producer.transaction():
                task = asyncio.create_task(late())
                await asyncio.sleep(0)
                raise ArithmeticError
        ended.set()
        await task
    assert (memory.counts("orders").added, memory.counts("invoices").added) == (0, 1)


class StuckCommit:
    """A writer whose commit is under way until it is cancelled."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.may_be_committed = False
        self.is_stuck = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, produce: Callable[[], Awaitable[Any]]) -> Any:
        await self._inner.commit(produce)
        self.may_be_committed = True
        self.is_stuck.set()
        await asyncio.Event().wait()


async def test_a_commit_that_is_cancelled_under_way_is_not_made_twice(
    memory: MemoryBroker, where: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ClientTransactions._opened
    stuck: list[StuckCommit] = []

    async def once_stuck(self: ClientTransactions) -> Any:
        writer = await opened(self)
        if stuck:
            return writer
        stuck.append(StuckCommit(writer))
        return stuck[0]

    monkeypatch.setattr(ClientTransactions, "_opened", once_stuck)
    async with Session(**where) as session:
        await session.send("orders", "a", id="a")
        committing = asyncio.create_task(session.commit(confirm=True))
        while not stuck:
            await asyncio.sleep(0)
        await stuck[0].is_stuck.wait()
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        await session.commit()
        await session.send("orders", "b", id="b")
        await session.commit()
    assert memory.counts("orders").added == 2


@pytest.mark.parametrize("ends", ["is closed", "has failed"])
async def test_a_rollback_does_without_a_consumer_that_has_ended(
    memory: MemoryBroker, where: ConnectOptions, ends: str
) -> None:
    await send(where, "a")
    async with Session(**where) as session:
        orders, invoices = await session.consumer("orders"), await session.consumer("invoices")
        message = await orders.receive()
        if ends == "is closed":
            await invoices.close()
        else:
            invoices._attachment._failure = Closed("refused")
        await session.rollback()
        again = await orders.receive()
        assert (again.id, again.attempt) == (message.id, 2)


# --- consumers -----------------------------------------------------------------------------------


async def test_several_tasks_may_receive_from_a_consumer(
    memory: MemoryBroker, where: ConnectOptions
) -> None:
    names = [str(number) for number in range(100)]
    await send(where, *names)
    seen: list[str] = []
    async with RingConsumer("orders", credit=10, **where) as consumer:

        async def receives() -> None:
            while (message := await consumer.receive(timeout_ms=500)) is not None:
                seen.append(message.id)
                await message.ack()

        await asyncio.gather(*(receives() for _ in range(4)))
    assert sorted(seen) == sorted(names)


async def test_a_flush_that_gives_up_leaves_the_refusals_to_another(
    where: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(where, "a", "b")
    async with RingConsumer("orders", **where) as consumer:
        await consumer.receive()
        message = await consumer.receive()
        connection = consumer._connection
        held: list[tuple[bytes, dict[str, Any]]] = []
        take = connection._take_reply
        monkeypatch.setattr(connection, "_take_reply", lambda *reply: held.append(reply))
        await message.ack()
        flushes = [asyncio.create_task(consumer.flush()) for _ in range(2)]
        while not held:
            await asyncio.sleep(0.01)
        flushes[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushes[0]
        assert not flushes[1].done()
        key, _ = held[-1]
        take(key, {"ok": False, "reason": "stale_delivery", "about": "b", "text": "late"})
        monkeypatch.undo()
        (refused,) = await flushes[1]
        assert refused.about == "b"


async def test_a_consumer_that_is_cancelled_while_it_cleans_up_detaches(
    memory: MemoryBroker, where: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(where, "a")
    consumer = RingConsumer("orders", **where)
    cleans_up = asyncio.Event()

    async def stuck() -> None:
        cleans_up.set()
        await asyncio.Event().wait()

    async def fails() -> None:
        async with consumer:
            await consumer.receive()
            monkeypatch.setattr(consumer, "_failed", stuck)
            raise ArithmeticError

    task = asyncio.create_task(fails())
    await cleans_up.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    counts = memory.counts("orders")
    assert (counts.ready, counts.delivering) == (1, 0)


async def test_a_consumer_that_is_cancelled_while_it_detaches_disconnects(
    where: ConnectOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = RingConsumer("orders", **where)
    await consumer.start()
    detaches = asyncio.Event()

    async def stuck(_: Attachment) -> None:
        detaches.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Attachment, "_detach", stuck)
    closing = asyncio.create_task(consumer.close())
    await detaches.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert consumer._attachment._reader is None
    assert consumer._connection._producer is None


async def test_mode_dups_ok_is_not_held_up_by_a_credit_in_bytes(where: ConnectOptions) -> None:
    """It would hand out nothing more before the acks, which wait for ten messages."""
    names = [*"abcdefghijkl"]
    await send(where, *names)
    seen = []
    async with RingConsumer("orders", ack_mode="dups_ok", credit_bytes=1, **where) as consumer:
        while (message := await consumer.receive(timeout_ms=5_000)) is not None:
            seen.append(message.id)
            if len(seen) == len(names):
                break
    assert seen == names
