"""Writes the settles of one consumer in the order of the calls, and many acks as one record."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ringfaust.client.connection import Connection
from ringfaust.client.errors import Closed, Refused, SettleRefused

log = logging.getLogger(__name__)

ACKS_PER_RECORD = 500
"""Most acks in one record."""
RECORD_BYTES = 48 * 1024
"""Most bytes of its deliveries. The names beside them have at most 12 KiB; a record has 64."""
QUEUED_ACKS = 10_000
"""An ack waits while so many acks of the consumer are not written."""
REFUSALS_KEPT = 1_000
"""Refused acks that `flush` has not returned yet; of more, the oldest are forgotten."""
_LINGER_S = 0.003
"""How long the first ack waits for others, unless the program waits for messages."""


class QueuedAck(NamedTuple):
    """An ack that nobody waits for."""

    partition: int
    delivery: int
    message_id: str


class _Awaited(NamedTuple):
    """A settle, or a pause between two (without a command), whose caller waits until its turn."""

    partition: int
    raw: bytes
    written: asyncio.Future[None]


class SettleQueue:
    """The settles of a consumer that are not written yet.

    One task writes them, one record at a time. What is acked meanwhile becomes the next record.
    """

    def __init__(self, connection: Connection, who: Mapping[str, str], half_window: int) -> None:
        """Prepare a queue; `start` begins to write.

        Args:
            connection: must be open before `start`.
            who: the fields `queue` and `consumer` of the commands.
            half_window: so many acks are written at once, since the worker waits for them.
        """
        self._connection = connection
        self._who = dict(who)
        self._half_window = half_window
        self._items: deque[QueuedAck | _Awaited] = deque()
        self._wake = asyncio.Event()
        self._now = asyncio.Event()
        self._asked = 0
        """1: an ack has asked to be written, 2: at once. So each need not ask."""
        self._drained = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._unanswered: set[asyncio.Future[dict[str, Any]]] = set()
        self._refused: deque[SettleRefused] = deque(maxlen=REFUSALS_KEPT)
        self._failure: Exception | None = Closed("the consumer is not started")

    def __len__(self) -> int:
        """How many settles are not written."""
        return len(self._items)

    def start(self) -> None:
        """Start to write."""
        self._failure = None
        self._loop = asyncio.get_running_loop()
        self._writing = asyncio.create_task(self._write_all())

    async def close(self) -> None:
        """Stop writing. Settles that are still queued are lost: their deliveries return."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
            self._writing = None
        self._fail(Closed("the consumer is closed"))
        self._items.clear()

    def ack(self, ack: QueuedAck, *, covers: bool = False) -> bool:
        """Queue an ack.

        Args:
            ack: the ack.
            covers: it also acks what was received before it, so it replaces the ack before it.

        Returns:
            False if the caller should `wait_for_room`.
        """
        items = self._items
        if covers and items and isinstance(items[-1], QueuedAck):
            items[-1] = ack
        else:
            items.append(ack)
        asks = 2 if covers or len(items) >= self._half_window else 1
        if asks > self._asked:  # it may be another thread, and a signal may interrupt this
            self._loop.call_soon_threadsafe(self._begin, asks == 2)
            self._asked = asks
        return len(items) < QUEUED_ACKS

    def _begin(self, is_urgent: bool) -> None:
        self._wake.set()
        if is_urgent:
            self._now.set()

    def write_now(self) -> None:
        """Write what is queued at once: nothing will be acked meanwhile."""
        if self._items:
            self._now.set()

    async def wait_for_room(self) -> None:
        """Wait until an ack can be queued.

        Raises:
            KafkaError: the brokers do not accept the acks.
        """
        while len(self._items) >= QUEUED_ACKS and self._failure is None:
            self._drained.clear()
            await self._drained.wait()
        self.check()

    async def write(self, partition: int, raw: bytes) -> None:
        """Write a command behind all settles that are queued. Empty: only wait until its turn.

        Raises:
            KafkaError: the brokers did not accept it.
        """
        self.check()
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        item = _Awaited(partition, raw, written)
        self._items.append(item)
        self._wake.set()
        self._now.set()
        try:
            await written
        except asyncio.CancelledError:
            if item in self._items:
                self._items.remove(item)
            raise

    async def flush(self) -> list[SettleRefused]:
        """Write what is queued, wait for the worker, and return the acks refused since last time.

        Raises:
            NoAnswer: no worker answered in time.
            KafkaError: the brokers do not accept the acks.
        """
        await self.write(-1, b"")
        for future in list(self._unanswered):
            with suppress(Refused):  # `_on_reply` has it
                await self._connection.await_reply(future)
        refused = list(self._refused)
        self._refused.clear()
        return refused

    def drop_acks(self) -> None:
        """Forget the queued acks: the consumer has lost these deliveries."""
        kept = [item for item in self._items if isinstance(item, _Awaited)]
        self._items.clear()
        self._items.extend(kept)

    def check(self) -> None:
        """Raise the error that ended the writing, if any."""
        if self._failure is not None:
            raise self._failure

    # --- writing ----------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        try:
            while True:
                await self._wake.wait()
                await self._linger()
                while self._items:
                    await self._write_first()
                    self._drained.set()
                self._wake.clear()
                self._now.clear()
                self._asked = 0
        except Exception as error:
            log.warning("%s: %d settles are not written: %r", self._who, len(self._items), error)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Raise an error in the calls that wait, and from now on."""
        self._failure = error
        self._drained.set()
        for item in self._items:
            if isinstance(item, _Awaited) and not item.written.done():
                item.written.set_exception(error)

    async def _linger(self) -> None:
        """Wait a moment for more acks, unless somebody waits for these."""
        try:
            async with asyncio.timeout(_LINGER_S):
                await self._now.wait()
        except TimeoutError:
            return

    async def _write_first(self) -> None:
        """Write the first settle or, if it is an ack, all acks that fit into its record."""
        first = self._items[0]
        if isinstance(first, QueuedAck):
            await self._write_acks(self._first_acks(first.partition))
            return
        try:
            if first.raw:
                await self._connection.write_command(first.partition, first.raw)
        except Exception as error:  # for the caller, who may try again
            if not first.written.done():
                first.written.set_exception(error)
        else:
            if not first.written.done():
                first.written.set_result(None)
        if self._items and self._items[0] is first:
            self._items.popleft()

    def _first_acks(self, partition: int) -> list[QueuedAck]:
        acks: list[QueuedAck] = []
        size_bytes = 0
        for item in self._items:
            if not isinstance(item, QueuedAck) or item.partition != partition:
                break
            size_bytes += _json_bytes(item.message_id)
            if acks and size_bytes > RECORD_BYTES or len(acks) == ACKS_PER_RECORD:
                break
            acks.append(item)
        return acks

    async def _write_acks(self, acks: list[QueuedAck]) -> None:
        key, reply = self._connection.expect_reply()
        command = {
            "type": "ack_many", **self._who,
            "deliveries": [(ack.delivery, ack.message_id) for ack in acks], "reply": key,
        }  # fmt: skip
        try:
            raw = json.dumps(command, separators=(",", ":")).encode()
            await self._connection.write_command(acks[0].partition, raw)
        except BaseException:
            self._connection.drop_reply(key)
            raise
        self._unanswered.add(reply)
        reply.add_done_callback(self._on_reply)
        for ack in acks:  # unless the consumer has lost them meanwhile
            if self._items and self._items[0] is ack:
                self._items.popleft()

    def _on_reply(self, reply: asyncio.Future[dict[str, Any]]) -> None:
        self._unanswered.discard(reply)
        if reply.cancelled() or reply.exception() is not None:
            return
        body = reply.result()
        for no in body.get("refused", []) if body["ok"] else [body]:
            refused = SettleRefused(no["reason"], no["about"], no["text"])
            log.warning("%s: an ack was refused: %s", self._who["consumer"], refused)
            self._refused.append(refused)


def _json_bytes(message_id: str) -> int:
    """No less than what a delivery takes in the JSON of a record."""
    most = 2 if message_id.isascii() and message_id.isprintable() else 12
    return most * len(message_id) + 24
