"""A consumer of a queue: hands out what is dispatched to it, and settles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self, Unpack

from ringfaust.client.attachment import Attachment
from ringfaust.client.connection import (
    CLOSE_TIMEOUT_S,
    Connection,
    encode,
    new_name,
    refuse_unknown,
)
from ringfaust.client.errors import (
    BadArgument,
    ClientError,
    Closed,
    NoAnswer,
    Refused,
    SettleRefused,
)
from ringfaust.client.locate import QueueLocation, locate
from ringfaust.client.message import Message
from ringfaust.client.options import AckMode, ConsumerOptions, attach_command, subscription_queue
from ringfaust.client.resource import AsyncResource

log = logging.getLogger(__name__)

DUPS_OK_BATCH = 10
"""How many acks of mode `dups_ok` are written together (R16)."""


class SettleBuffer(Protocol):
    """A session: keeps the settles of its consumers until the commit."""

    name: str
    connection: Connection

    def defer(self, consumer: RingConsumer, settle: Mapping[str, Any]) -> None:
        """Keep a settle of this consumer's."""

    def consumers_beside(self, consumer: RingConsumer) -> list[RingConsumer]:
        """The session's consumers in the partition of this one, itself among them."""


class DispatchSnapshot(NamedTuple):
    """A moment of a consumer, so that all that was dispatched before can be forgotten."""

    held: list[int]
    end: int


class RingConsumer(AsyncResource):
    """Consumes a queue, from the begin of a `with` block (or from `start`) to its end.

    ::

        async with RingConsumer("orders", credit=10) as consumer:
            async for message in consumer:
                print(message.value)
                await message.ack()

    It survives restarts of brokers and workers, and rebalances. Where it was silent for longer than
    the queue's `consumer_timeout`, it attaches again by itself; what it held then has been given
    back, and its settle is refused.

    At the end of the block it detaches: what it held comes back and does not count as tried, but
    where the block ended with an exception, what was handed out and not settled does.

    Args:
        queue: its name; empty with `address`.
        session: the session that it works in; see `Session.consumer`.
        options: see `AttachOptions` and `ConnectOptions`; all have a default.
    """

    def __init__(
        self,
        queue: str = "",
        *,
        session: SettleBuffer | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        refuse_unknown(options, ConsumerOptions)
        if bool(queue) == bool(options.get("address")):
            raise BadArgument("a consumer needs either a queue or an address")
        self.name = options.get("name") or new_name()
        self.queue = queue or subscription_queue(self.name, options)
        self.ack_mode: AckMode = options.get("ack_mode", "individual")
        heartbeat_interval_s = options.get("heartbeat_ms", 10_000) / 1000
        if heartbeat_interval_s <= 0:
            raise BadArgument("heartbeat_ms must be 1 or more")
        self._options = options
        self._session = session
        self._connection = session.connection if session else Connection(options)
        command = attach_command(self.name, queue, session.name if session else "", options)
        encode(command)
        self._attachment = Attachment(
            self._connection,
            command,
            self.queue,
            heartbeat_interval_s,
            on_heartbeat=self._write_dups_ok_acks,
            on_lost=self._on_lost,
        )
        self._dups_ok_batch = max(1, min(DUPS_OK_BATCH, command["credit"]))
        self._held: dict[int, Message] = {}
        """Handed out and unsettled, by the number of the delivery."""
        self._last: Message | None = None
        self._dups_ok_acks: list[Message] = []
        """Acked in mode `dups_ok`, and not yet written."""
        self.losses = 0
        """How often it was found detached, and what it held had been given back."""
        self._is_closed = False

    # --- from start to end -----------------------------------------------------------------------

    @property
    def partition(self) -> int:
        """Where the queue lives; -1 before the start."""
        return self._attachment.partition

    async def start(self) -> None:
        """Find the queue, and attach. Once: what was closed is not started again.

        Raises:
            Refused: the worker did not take it: `unknown_queue` or `consumer_limit` say.
            NoAnswer: there is no worker.
            ClientError: there is no such application.
            KafkaError: the brokers cannot be reached, or refuse us.
        """
        if self.partition >= 0:
            raise ClientError(f"{self.name} was started already; make another consumer")
        try:
            if self._session is None:
                await self._connection.open()
            await self._attachment.start(await self._find())
        except BaseException:
            await self._disconnect()
            raise

    async def close(self) -> None:
        """Detach, and disconnect. What it held comes back and does not count as tried."""
        self._is_closed = True
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._write_dups_ok_acks()
        except TimeoutError:
            log.warning("%s: %d acks were not written", self.name, len(self._dups_ok_acks))
        finally:
            self._held.clear()
            await self._attachment.close()
            await self._disconnect()

    async def _find(self) -> QueueLocation:
        options = self._options
        return await locate(
            self._connection,
            self.queue,
            address=options.get("address", ""),
            key=options.get("key"),
            partition=options.get("partition"),
        )

    async def _failed(self) -> None:
        """What was in hand when an exception came has been tried (R40); the worker shall know."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for message in list(self._held.values()):
                    await self.settle(message, "release", False)
        except Exception:  # of the two errors the caller's own is the one to raise
            log.warning("%s could not release what it held", self.name, exc_info=True)

    async def _disconnect(self) -> None:
        if self._session is None:
            await self._connection.close()

    # --- messages --------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """The next message, as soon as there is one. `asyncio.timeout` bounds the wait.

        In the modes `auto` and `dups_ok` the one before is acked by this.

        Raises:
            Closed: the consumer is not started, or closed.
            Refused: it was detached for its silence, and the queue did not take it again.
            KafkaError: the brokers refuse us.
        """
        if self._last is not None and self._last.delivery in self._held:
            await self._last.ack()
        self._last = None
        record, headers = await self._attachment.next()
        message = Message.read(record, headers, self)
        if self.ack_mode != "none":
            self._held[message.delivery] = message
            if self.ack_mode in ("auto", "dups_ok"):
                self._last = message
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except Closed:
            if self._is_closed:
                raise StopAsyncIteration from None
            raise

    async def add_credit(self, add: int) -> None:
        """Take so many more unsettled messages from now on (R10).

        Raises:
            BadArgument, Refused: not so many.
            NoAnswer: there is no worker; whether it took effect is not known.
        """
        await self._attachment.request("credit", add=add)

    async def recover(self) -> None:
        """Give all back that it holds, and stay attached (R20). It comes again, redelivered.

        Raises:
            Refused: it was not attached any more.
            NoAnswer: there is no worker; whether it took effect is not known.
        """
        await self._write_dups_ok_acks()
        snapshot = await self.snapshot()
        await self._attachment.request("recover")
        self.forget(snapshot)

    # --- settling --------------------------------------------------------------------------------

    async def settle(
        self, message: Message, kind: str, confirm: bool, **fields: str | int | None
    ) -> None:
        """Settle a message; call the message's own methods."""
        if self.ack_mode == "none" and kind == "ack":
            return  # it was gone when it was handed over
        self._attachment.check()
        settle = {
            "type": kind, "queue": self.queue, "consumer": self.name, "message": message.id,
            "delivery": message.delivery, **fields,
        }  # fmt: skip
        raw = encode(settle)
        ended = self._end(message, kind)
        if self._session is not None:
            self._session.defer(self, settle)
        elif self.ack_mode == "dups_ok" and kind == "ack" and not (confirm or fields["xid"]):
            self._dups_ok_acks.append(message)
            if len(self._dups_ok_acks) >= self._dups_ok_batch:
                await self._write_dups_ok_acks()
        else:
            await self._write(settle, raw, message.partition, confirm, ended)

    def _end(self, message: Message, kind: str) -> list[Message]:
        """Take the messages that a settle ends out of what is held."""
        if message.delivery not in self._held:
            if self._is_closed:
                raise Closed(f"{self.name} is closed; what it held has been given back")
            text = "the delivery has ended: it is settled, or was given back meanwhile"
            raise SettleRefused("stale_delivery", message.id, text)
        if self.ack_mode != "client" or kind != "ack":
            return [self._held.pop(message.delivery)]
        together = self._session.consumers_beside(self) if self._session else [self]
        return [ended for each in together for ended in each.end_until(message.delivery)]

    def end_until(self, delivery: int) -> list[Message]:
        """Take all up to that delivery out of what is held."""
        return [self._held.pop(number) for number in list(self._held) if number <= delivery]

    async def _write(
        self,
        settle: Mapping[str, Any],
        raw: bytes,
        partition: int,
        confirm: bool,
        ended: list[Message],
    ) -> None:
        try:
            if confirm:
                await self._connection.request(partition, settle)
            else:
                await self._connection.write_command(partition, raw)
        except Refused as refused:
            if refused.reason == "bad_command":  # it is the settle that was wrong
                for each in ended:
                    each.settler.hold(each)
            raise SettleRefused(refused.reason, refused.about, refused.text) from None
        except NoAnswer:
            raise
        except BaseException:  # not written, as far as we know: it can be tried again
            for each in ended:
                each.settler.hold(each)
            raise

    async def _write_dups_ok_acks(self) -> None:
        """Write the acks of mode `dups_ok`."""
        lazy, self._dups_ok_acks = self._dups_ok_acks, []
        settles = [
            encode({
                "type": "ack", "queue": self.queue, "consumer": self.name, "message": each.id,
                "delivery": each.delivery,
            })
            for each in lazy
        ]  # fmt: skip
        try:
            await asyncio.gather(
                *(
                    self._connection.write_command(each.partition, raw)
                    for each, raw in zip(lazy, settles, strict=True)
                )
            )
        except BaseException:  # again with the next; those that were written do no harm
            self._dups_ok_acks[:0] = lazy
            raise

    # --- what is held ----------------------------------------------------------------------------

    def hold(self, message: Message) -> None:
        """Hold again what was not settled after all."""
        self._held[message.delivery] = message

    async def snapshot(self) -> DispatchSnapshot:
        """This moment: before all that is held is given back."""
        return DispatchSnapshot(list(self._held), await self._attachment.end())

    def forget(self, snapshot: DispatchSnapshot) -> None:
        """All that was dispatched before has been given back."""
        for number in snapshot.held:
            self._held.pop(number, None)
        self._attachment.forget(snapshot.end)

    def _on_lost(self) -> None:
        """It was found detached; nothing that it held is its own any more."""
        self.losses += 1
        self._held.clear()
        self._dups_ok_acks.clear()
