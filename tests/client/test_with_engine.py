"""A consumer and the worker's own processor, joined without a broker."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ringfaust.client import RingConsumer
from ringfaust.client.connection import Connection
from ringfaust.client.options import AckMode
from ringfaust.protocol.records import Role
from tests.processor.test_replies import Bench as Partition

DEADLINE_S = 30


class Reader:
    """Reads what the processor dispatches."""

    def __init__(self) -> None:
        self.records: asyncio.Queue[Any] = asyncio.Queue()

    async def getone(self) -> Any:
        return await self.records.get()

    async def getmany(self, *, max_records: int) -> dict[str, list[Any]]:
        count = min(max_records, self.records.qsize())
        return {"dispatched": [self.records.get_nowait() for _ in range(count)]}

    async def stop(self) -> None:
        """Nothing is open."""


class Joined(Connection):
    """A connection to a processor."""

    def __init__(self) -> None:
        super().__init__({})
        self.partitions = frozenset({0})
        self.processor = Partition()
        self.dispatched = Reader()
        self.commands: list[str] = []
        self._offset = 0

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Nothing is open."""

    async def reader(self, role: Role, partition: int | None = None) -> Any:
        return self.dispatched

    async def write_command(self, partition: int, raw: bytes) -> None:
        self.commands.append(json.loads(raw)["type"])
        await asyncio.sleep(0)
        self.processor.take("control", raw)
        self.deliver()

    def send(self, count: int) -> None:
        """Send messages to the queue `q`."""
        for number in range(count):
            self.processor.take("in", b"body", ("to", b"q"), ("ringfaust-id", b"m%d" % number))
        self.deliver()

    def deliver(self) -> None:
        """Hand out what the processor has written."""
        self.processor.replies()
        for key, value, _ in self.processor.out.get((Role.REPLIES, None), []):
            if key in self._pending_replies:
                self._take_reply(key, json.loads(value or b""))
        for key, value, headers in self.processor.out.get((Role.DISPATCHED, None), []):
            self._offset += 1
            record = SimpleNamespace(
                offset=self._offset, partition=0, key=key, value=value, headers=tuple(headers)
            )
            self.dispatched.records.put_nowait(record)

    def counts(self) -> dict[str, int]:
        """The counts of the queue."""
        (reply,) = self.processor.say("list", queue="q")
        return dict(reply["answer"]["counts"])


def consumer(joined: Joined, name: str, **options: Any) -> RingConsumer:
    made = RingConsumer("q", name=name, partition=0, **options)
    for part in (made, made._attachment, made._settles):
        part._connection = joined
    return made


@pytest.mark.parametrize("ack_mode", ["individual", "client", "auto", "dups_ok"])
async def test_everything_is_acked_with_far_fewer_records_than_messages(ack_mode: AckMode) -> None:
    joined = Joined()
    joined.send(300)
    seen = []
    async with asyncio.timeout(DEADLINE_S), consumer(joined, "me", ack_mode=ack_mode) as mine:
        while len(seen) < 300:
            message = await mine.receive()
            seen.append(message.id)
            if ack_mode in ("individual", "client"):
                await message.ack()
        assert await mine.flush() == []
        acked = joined.counts()["acked"]
    assert seen == [f"m{number}" for number in range(300)]
    assert acked == (300 if ack_mode in ("individual", "client") else 299)
    acks = joined.commands.count("ack_many")
    assert 0 < acks < 150
    assert set(joined.commands) == {"attach", "ack_many", "detach"}


async def test_after_a_crash_only_what_was_acked_and_not_written_is_delivered_again() -> None:
    joined = Joined()
    joined.send(6)
    async with asyncio.timeout(DEADLINE_S):
        dying = consumer(joined, "dying")
        await dying.start()
        messages = [await dying.receive() for _ in range(6)]
        for message in messages[:4]:
            await message.ack()
        await dying.flush()
        await messages[4].ack()
        await messages[5].ack()
        await dying._settles.close()  # the process ends before it writes them
        await dying._attachment.close()  # in its stead, the worker finds it silent
        async with consumer(joined, "next") as other:
            again = [await other.receive() for _ in range(2)]
            assert [each.id for each in again] == ["m4", "m5"]
            assert all(each.redelivered for each in again)
    assert joined.counts()["acked"] == 4


async def test_an_ack_after_a_return_is_refused_and_reported() -> None:
    joined = Joined()
    joined.send(2)
    async with asyncio.timeout(DEADLINE_S), consumer(joined, "me") as mine:
        first, second = await mine.receive(), await mine.receive()
        recover = json.dumps({"type": "recover", "queue": "q", "consumer": "me"})
        joined.processor.take("control", recover.encode())
        joined.deliver()
        await first.ack()
        await second.ack()
        refused = [(each.reason, each.about) for each in await mine.flush()]
        assert refused == [("stale_delivery", "m0"), ("stale_delivery", "m1")]
