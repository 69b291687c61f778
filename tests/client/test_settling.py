"""How a consumer writes its settles: in order, and many acks as one record. No broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ringfaust.client import RingConsumer, SettleRefused
from ringfaust.client.connection import Connection
from ringfaust.client.message import Message
from ringfaust.client.settling import ACKS_PER_RECORD, QUEUED_ACKS, QueuedAck, SettleQueue
from ringfaust.protocol import headers as h
from ringfaust.protocol.control import read_control
from tests.records import new_record

DEADLINE_S = 30


class Worker(Connection):
    """A connection to nothing, which records what is written and answers it."""

    def __init__(self) -> None:
        super().__init__({})
        self.written: list[dict[str, Any]] = []
        self.ended: dict[int, str] = {}
        """Deliveries that have ended, with the reason for which their settles are refused."""
        self.accepts = asyncio.Event()
        self.accepts.set()

    async def write_command(self, partition: int, raw: bytes) -> None:
        await self.accepts.wait()
        read_control(raw)
        command = json.loads(raw)
        self.written.append(command)
        if "reply" not in command:
            return
        key = command["reply"].encode()
        several = command.get("deliveries")
        late = {"v": 1, "ok": False, "text": "it has ended"}
        for number, message_id in several or [(command["delivery"], command["message"])]:
            if number in self.ended:
                about = {"reason": self.ended[number], "about": message_id}
                self._take_reply(key, late | about | ({"delivery": number} if several else {}))
                if not several:
                    return
        self._take_reply(key, {"v": 1, "ok": True})

    def settled(self) -> list[tuple[str, Any]]:
        """What was written: each command with the numbers of its deliveries."""
        return [
            (each["type"], [number for number, _ in each["deliveries"]])
            if "deliveries" in each
            else (each["type"], each.get("delivery"))
            for each in self.written
        ]


class Attached:
    """Stands for an attachment that lives."""

    partition = 0

    def take(self) -> None:
        """There is no message."""

    async def next(self) -> None:
        """There is no message."""
        await asyncio.Event().wait()

    def check(self) -> None:
        """Nothing has failed."""

    async def close(self) -> None:
        """Nothing to close."""


class Bench:
    """A consumer that has received messages, and what it writes."""

    def __init__(self, **options: Any) -> None:
        self.worker = Worker()
        self.consumer = RingConsumer("q", name="me", **options)
        self.consumer._connection = self.worker
        self.consumer._settles = SettleQueue(
            self.worker, {"queue": "q", "consumer": "me"}, options.get("credit", 100) // 2
        )
        self.consumer._settles.start()
        self.consumer._attachment = Attached()  # type: ignore[assignment]

    def message(self, number: int) -> Message:
        """A message of the consumer."""
        said = {
            h.ID: f"m{number}", h.QUEUE: "q", h.SEQUENCE: "1", h.PRIORITY: "4", h.ENQUEUED_MS: "0",
            h.SOURCE: "in/0/0", h.DELIVERY: str(number), h.ATTEMPT: "1", h.HANDOVERS: "1",
        }  # fmt: skip
        headers = {name: text.encode() for name, text in said.items()}
        record = new_record("dispatched", number, b"body", tuple(headers.items()))
        message = Message(record, headers, self.consumer)
        self.consumer.hold(message)
        return message

    def messages(self, count: int) -> list[Message]:
        return [self.message(number) for number in range(1, count + 1)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(credit=100_000)
    async with asyncio.timeout(DEADLINE_S):
        yield made
    await made.consumer._settles.close()


async def test_acks_of_a_moment_travel_in_one_record(bench: Bench) -> None:
    for message in bench.messages(3):
        await message.ack()
    assert bench.worker.written == []
    assert await bench.consumer.flush() == []
    assert bench.worker.settled() == [("ack_many", [1, 2, 3])]
    (command,) = bench.worker.written
    assert (command["queue"], command["consumer"]) == ("q", "me")
    assert command["deliveries"] == [[1, "m1"], [2, "m2"], [3, "m3"]]


async def test_acks_do_not_wait_for_others_while_the_program_waits_for_messages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfaust.client.settling._LINGER_S", 10 * DEADLINE_S)
    for message in bench.messages(3):
        await message.ack()
    receiving = asyncio.create_task(bench.consumer.receive())
    async with asyncio.timeout(DEADLINE_S):
        while not bench.worker.written:
            await asyncio.sleep(0)
    assert bench.worker.settled() == [("ack_many", [1, 2, 3])]
    receiving.cancel()


async def test_settles_are_written_in_the_order_of_the_calls(bench: Bench) -> None:
    first, second, third, fourth, fifth = bench.messages(5)
    await first.ack()
    await second.ack()
    release = asyncio.create_task(third.release(delay_ms=5))
    await asyncio.sleep(0)
    await fourth.ack()
    await fifth.ack(confirm=True)
    await release
    assert bench.worker.settled() == [
        ("ack_many", [1, 2]), ("release", 3), ("ack_many", [4]), ("ack", 5),
    ]  # fmt: skip


async def test_a_record_holds_a_bounded_number_of_acks(bench: Bench) -> None:
    for message in bench.messages(ACKS_PER_RECORD + 1):
        await message.ack()
    await bench.consumer.flush()
    assert [len(numbers) for _, numbers in bench.worker.settled()] == [ACKS_PER_RECORD, 1]


async def test_acks_of_long_ids_fit_into_their_records(bench: Bench) -> None:
    for number in range(1, 51):
        bench.consumer._settles.ack(QueuedAck(0, number, "\U0001f95a" * 512))
    await bench.consumer.flush()  # `read_control` refuses a record that is too long
    assert sum(len(numbers) for _, numbers in bench.worker.settled()) == 50
    assert len(bench.worker.written) > 1


async def test_closing_writes_what_is_queued(bench: Bench) -> None:
    for message in bench.messages(3):
        await message.ack()
    await bench.consumer.close()
    assert bench.worker.settled() == [("ack_many", [1, 2, 3])]


async def test_a_crash_loses_only_queued_acks(bench: Bench) -> None:
    first, second, third = bench.messages(3)
    await first.ack()
    await bench.consumer.flush()
    await second.ack()
    await third.ack()
    await bench.consumer._settles.close()  # what the end of the process does
    assert bench.worker.settled() == [("ack_many", [1])]


async def test_an_ack_waits_while_too_many_are_queued(bench: Bench) -> None:
    bench.worker.accepts.clear()
    messages = bench.messages(QUEUED_ACKS)
    for message in messages[:-1]:
        await message.ack()
    last = asyncio.create_task(messages[-1].ack())
    await asyncio.wait([last], timeout=0.05)
    assert not last.done()
    bench.worker.accepts.set()
    await last
    assert len(bench.consumer._settles) < QUEUED_ACKS


async def test_an_ack_with_confirm_raises_its_refusal(bench: Bench) -> None:
    bench.worker.ended = {2: "evicted"}
    first, second = bench.messages(2)
    await first.ack(confirm=True)
    with pytest.raises(SettleRefused) as refused:
        await second.ack(confirm=True)
    assert (refused.value.reason, refused.value.about) == ("evicted", "m2")


async def test_flush_returns_the_refusals_of_queued_acks_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.worker.ended = {2: "stale_delivery"}
    for message in bench.messages(3):
        await message.ack()
    assert [(each.reason, each.about) for each in await bench.consumer.flush()] == [
        ("stale_delivery", "m2")
    ]
    assert await bench.consumer.flush() == []
    assert "me: an ack was refused: stale_delivery 'm2'" in caplog.text


async def test_a_second_settle_is_refused_before_the_first_is_written(bench: Bench) -> None:
    (message,) = bench.messages(1)
    await message.ack()
    with pytest.raises(SettleRefused, match="it was settled or returned"):
        await message.ack()
    with pytest.raises(SettleRefused):
        await message.release()


async def test_acks_of_deliveries_that_were_lost_are_not_written(bench: Bench) -> None:
    for message in bench.messages(3):
        await message.ack()
    bench.consumer._on_lost()
    assert await bench.consumer.flush() == []
    assert bench.worker.written == []


async def test_in_mode_client_only_the_last_ack_is_written() -> None:
    bench = Bench(ack_mode="client")
    messages = bench.messages(3)
    for message in messages:
        await message.ack()
    async with asyncio.timeout(DEADLINE_S):
        await bench.consumer.flush()
    assert bench.worker.settled() == [("ack_many", [3])]
    await bench.consumer.close()
