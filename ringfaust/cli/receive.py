"""`ringfaust receive`: take messages of a queue, or look at them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringfaust.cli.operate import Target, approve, connect_options, print_json_line, say
from ringfaust.cli.parts import read_length
from ringfaust.cli.reach import check_worker, reached, started
from ringfaust.client import Admin, Message, RingConsumer
from ringfaust.client.inspected import MessageDetails
from ringfaust.config import WorkerConfig
from ringfaust.visible import text_of

if TYPE_CHECKING:
    from ringfaust.cli.exchange import Receiving

_BODY_BYTES = 100_000
_LOOK_S = 3.0
"""How long the partitions may take to say whether they have the queue."""
_NONE = 1
_DONE = {"ack": "acked", "release": "released"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message as it was received. Times are in ms since 1970."""

    id: str
    queue: str
    priority: int
    enqueued_ms: int
    source: str
    """Its producer's record: topic/partition/offset."""
    key: bytes | None
    headers: dict[str, bytes | None]
    value: bytes | None
    is_whole: bool
    """Whether `value` is all of it: `browse` shows the first 100,000 bytes."""

    @classmethod
    def of(cls, found: Message) -> ReceivedMessage:
        """Read one that was delivered."""
        return cls(
            id=found.id, queue=found.queue, priority=found.priority, enqueued_ms=found.enqueued_ms,
            source=found.source, key=found.key, headers=dict(found.headers), value=found.value,
            is_whole=True,
        )  # fmt: skip

    @classmethod
    def browsed(cls, found: MessageDetails) -> ReceivedMessage:
        """Read one that is in the queue."""
        return cls(
            id=found.id, queue=found.queue, priority=found.priority, enqueued_ms=found.enqueued_ms,
            source=found.source, key=found.key.start if found.key else None,
            headers={name: each.start if each else None for name, each in found.headers.items()},
            value=found.value.start if found.value else None,
            is_whole=found.value is None or found.value.is_whole,
        )  # fmt: skip


def run(target: Target, queue: str, how: Receiving) -> int:
    """Print messages as they are received: bodies, one a line, or JSON.

    Returns:
        0; 1 if there was no message.

    Raises:
        BadTime: `wait` is no length of time.
        NotConfirmed: nothing names the application, and the user did not confirm.
        BrokerUnreachable: no broker answers.
        NoWorker: no worker lives.
        Refused: there is no such queue, or it refuses another consumer.
    """
    wait_ms = read_length("--wait", how.wait)
    if how.settle in _DONE:
        approve(target, yes=how.yes)
    received = asyncio.run(_receive(target.load()[0], queue, how, wait_ms))
    if (done := _DONE.get(how.settle)) is not None:
        say(f"{received:,} messages of {queue} {done} ({target.where()})", to_errors=True)
    return 0 if received else _NONE


async def _receive(worker: WorkerConfig, queue: str, how: Receiving, wait_ms: int) -> int:
    worker = await reached(worker)
    await check_worker(worker)
    received = 0
    takes = how.settle in _DONE
    found = _take(worker, queue, how, wait_ms) if takes else _browse(worker, queue, how)
    async for each in found:
        received += 1
        if how.as_json:
            print_json_line(each)
        else:
            say(text_of(each.value or b"") + ("" if each.is_whole else "…"))
    return received


async def _browse(
    worker: WorkerConfig, queue: str, how: Receiving
) -> AsyncIterator[ReceivedMessage]:
    async with started(Admin(**connect_options(worker)), worker) as admin:
        left = how.most
        async for each in admin.browse(queue, body_bytes=_BODY_BYTES):
            yield ReceivedMessage.browsed(each)
            left -= 1
            if not left:
                return


async def _take(
    worker: WorkerConfig, queue: str, how: Receiving, wait_ms: int
) -> AsyncIterator[ReceivedMessage]:
    """Yield messages; each is acked once the next is wanted, all are released at the end."""
    async with started(Admin(**connect_options(worker)), worker) as admin:
        with suppress(TimeoutError):  # a partition may have stopped
            async with asyncio.timeout(_LOOK_S):
                await admin.queue(queue)  # attaching would create what a pattern declares
    consumer = RingConsumer(queue, **connect_options(worker), credit=how.most)
    held: list[Message] = []
    async with started(consumer, worker):
        for _ in range(how.most):
            found = await consumer.receive(wait_ms)
            if found is None:
                break
            yield ReceivedMessage.of(found)
            if how.settle == "ack":
                await found.ack(confirm=True)
            else:
                held.append(found)
        for each in held:
            await each.release(confirm=True)
