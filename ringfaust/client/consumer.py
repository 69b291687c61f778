"""A consumer of a queue: receives its deliveries and settles them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from aiokafka.errors import KafkaError

from ringfaust.client.attachment import Attachment, DispatchSnapshot
from ringfaust.client.brokers import CLOSE_TIMEOUT_S
from ringfaust.client.connection import Connection, encode, new_name, refuse_unknown
from ringfaust.client.errors import (
    BadArgument,
    ClientError,
    Closed,
    NoAnswer,
    Refused,
    SettleRefused,
    whole,
)
from ringfaust.client.locate import locate
from ringfaust.client.message import Message
from ringfaust.client.options import AckMode, ConsumerOptions, attach_command, subscription_queue
from ringfaust.client.resource import AsyncResource
from ringfaust.client.settling import QUEUED_ACKS, QueuedAck, SettleQueue
from ringfaust.protocol.records import InRecord
from ringfaust.spans import open_spans

if TYPE_CHECKING:
    from ringfaust.client.session import Session

log = logging.getLogger(__name__)

DUPS_OK_BATCH = 10
"""How many acks in mode `dups_ok` are written together (R16)."""


class RingConsumer(AsyncResource):
    """Consumes a queue while an `async with` block runs, or from `start` to `close`.

    ::

        async with RingConsumer("orders", credit=10) as consumer:
            async for message in consumer:
                print(message.value)
                await message.ack()

    It survives rebalances and restarts of brokers and workers. If it could not send a heartbeat for
    the queue's `consumer_timeout_ms` (R13), it attaches again. The worker has then returned what it
    held, and a settle of those deliveries is refused.

    At the end of the block it detaches. Its unsettled deliveries return without counting an attempt
    (R40). If the block ends with an exception, the deliveries that were received and not settled
    are released and count.

    Args:
        queue: the queue's name; leave it empty with `address`.
        session: the session to which the consumer belongs; see `Session.consumer`.
        options: see `AttachOptions` and `ConnectOptions`; all have defaults.

    Raises:
        BadArgument: an option is not valid, or both a queue and an address are given, or neither.
        TypeError: there is no such option.
    """

    def __init__(
        self,
        queue: str = "",
        *,
        session: Session | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        refuse_unknown(options, ConsumerOptions)
        if bool(queue) == bool(options.get("address")):
            raise BadArgument("a consumer needs either a queue or an address")
        self.name = options.get("name") or new_name()
        self.queue = queue or subscription_queue(self.name, options)
        self.ack_mode: AckMode = options.get("ack_mode", "individual")
        self.deserializer = options.get("deserializer", bytes)
        heartbeat_interval_s = whole("heartbeat_ms", options.get("heartbeat_ms", 10_000)) / 1000
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
            on_heartbeat=self._write_acks,
            on_lost=self._on_lost,
        )
        self._settles = SettleQueue(
            self._connection,
            {"queue": self.queue, "consumer": self.name},
            max(1, command["credit"] // 2),
        )
        self._dups_ok_batch = max(1, min(DUPS_OK_BATCH, command["credit"]))
        self._held: dict[int, Message] = {}
        """Received and not settled, by delivery number."""
        self._last: Message | None = None
        self._dups_ok_acks: list[Message] = []
        """Acked in mode `dups_ok`, not yet written."""
        self.losses = 0
        """How often it has lost its deliveries: it was found detached, or closed."""
        self._is_closed = False

    # --- start and close -------------------------------------------------------------------------

    @property
    def partition(self) -> int:
        """The partition of the queue; -1 before `start`."""
        return self._attachment.partition

    async def start(self) -> None:
        """Connect, find the queue and attach. A consumer can be started only once.

        Raises:
            Refused: the worker refused it, for example with `unknown_queue` or `consumer_limit`.
            NoAnswer: no worker answered in time.
            ClientError: the application has no topics, or the consumer was started before.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        if self.partition >= 0:
            raise ClientError(f"{self.name} was started before; create another consumer")
        try:
            if self._session is None:
                await self._connection.open()
            place = await locate(self._connection, self.queue, self._options)
            await self._attachment.start(place)
            self._settles.start()
        except BaseException:
            await self._disconnect()
            raise

    async def close(self) -> None:
        """Detach and disconnect. Unsettled deliveries return without counting an attempt (R40)."""
        self._is_closed = True
        self.losses += 1  # a session commits nothing of what it has settled
        _end_spans(self._held.values())
        self._held.clear()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._write_acks()
        except (TimeoutError, KafkaError, ClientError):
            log.warning("%s: %d acks were not written", self.name, len(self._settles))
        finally:
            try:
                await self._settles.close()
                await self._attachment.close()
            finally:
                await self._disconnect()

    async def _failed(self) -> None:
        """Release what was received, unless it is a session's, so that the attempt counts (R40)."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for message in [] if self._session else list(self._held.values()):
                    await self.settle(message, "release", False)
        except Exception:  # the caller's own error is the one to raise
            log.warning("%s could not release what it held", self.name, exc_info=True)

    async def _disconnect(self) -> None:
        if self._session is None:
            await self._connection.close()
        else:
            self._session.leave(self)

    # --- messages --------------------------------------------------------------------------------

    @overload
    async def receive(self) -> Message: ...

    @overload
    async def receive(self, timeout_ms: int | None) -> Message | None: ...

    async def receive(self, timeout_ms: int | None = None) -> Message | None:
        """Wait for the next message and return it.

        In the modes `auto` and `dups_ok` this acks the previous message (R16).

        Args:
            timeout_ms: how long to wait, in milliseconds; None for no limit.

        Returns:
            The message; None if there was none in time.

        Raises:
            Closed: the consumer is not started or already closed.
            Refused: the consumer timed out, and the queue refused to attach it again.
            KafkaError: the brokers refuse the client.
        """
        if self._last is not None and self._last.delivery in self._held:
            await self._last.ack()
        if (message := self.take()) is not None:
            return message
        if self._options.get("credit_bytes"):  # they may be all that it may hold
            self._queue_dups_ok_acks()
        self._settles.write_now()
        if timeout_ms is None:
            return self._received(*await self._attachment.next())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                found = await self._attachment.next()
        except TimeoutError:
            return None
        return self._received(*found)

    def take(self) -> Message | None:
        """Return what `receive` returns if it would not have to wait, and None otherwise."""
        if self._last is not None and self._last.delivery in self._held:
            if self._session is not None or len(self._settles) + DUPS_OK_BATCH >= QUEUED_ACKS:
                return None
            self.ack(self._last)
        self._last = None
        found = self._attachment.take()
        return None if found is None else self._received(*found)

    def _received(self, record: InRecord, headers: Mapping[str, bytes]) -> Message:
        message = Message(record, headers, self)
        if self.ack_mode != "none":
            self._held[message.delivery] = message
            if self.ack_mode in ("auto", "dups_ok"):
                self._last = message
        if (spans := open_spans()) is not None:
            message.span = spans.received(self.queue, message.id, headers, record.timestamp)
            if self.ack_mode == "none":
                message.span.end()
        return message

    def __aiter__(self) -> Self:
        """Iterate over the messages until the consumer is closed."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; see `receive`."""
        try:
            return await self.receive()
        except Closed:
            if self._is_closed:
                raise StopAsyncIteration from None
            raise

    @property
    def is_attached(self) -> bool:
        """Whether it gets messages: it is neither closed nor refused."""
        return self.partition >= 0 and not self._is_closed and self._attachment.is_whole

    def holds(self, message: Message) -> bool:
        """Whether the message is still to be settled: it was neither settled nor lost."""
        return message.delivery in self._held and self._held[message.delivery] is message

    async def add_credit(self, add: int) -> None:
        """Grant more credit: `add` more unsettled messages may be held from now on (R10).

        Raises:
            BadArgument: `add` is not valid.
            Refused: the worker refused it, because the total would be too large.
            NoAnswer: no worker answered in time. It is unknown whether it took effect.
        """
        await self._attachment.request("credit", add=add)

    async def recover(self) -> None:
        """Return all unsettled deliveries and stay attached (R20). They are then redelivered.

        Raises:
            Refused: the consumer is no longer attached.
            NoAnswer: no worker answered in time. It is unknown whether it took effect.
        """
        await self._write_acks()
        snapshot = await self.snapshot()
        await self._attachment.request("recover")
        self.forget(snapshot)

    # --- settling --------------------------------------------------------------------------------

    async def flush(self) -> list[SettleRefused]:
        """Write the queued acks, and wait until a worker has executed them.

        Returns:
            The acks that were refused since the last call, because their deliveries had ended;
            of more than 1,000, the last.

        Raises:
            NoAnswer: no worker answered in time. It is unknown whether they took effect.
            Closed: the consumer is not started or already closed.
            KafkaError: the brokers did not accept the acks.
        """
        self._queue_dups_ok_acks()
        return await self._settles.flush()

    def ack(self, message: Message) -> Coroutine[Any, Any, None] | None:
        """Queue the ack of a message. Programs call `Message.ack` instead.

        Returns:
            None, or what to wait for, because too many acks are queued.

        Raises:
            SettleRefused: the delivery has ended.
            Closed: the consumer is closed.
        """
        if self.ack_mode == "none":
            return None  # the dispatch itself settled it (R16)
        if self._session is not None:
            return self.settle(message, "ack", False)
        self._attachment.check()
        self._settles.check()
        self._end(message, "ack")
        if message.span is not None:
            with message.span.settling("ack"):
                pass  # it is written later, with others
        if self.ack_mode == "dups_ok":
            self._dups_ok_acks.append(message)
            if len(self._dups_ok_acks) < self._dups_ok_batch:
                return None
            has_room = self._queue_dups_ok_acks()
        else:
            has_room = self._queue_ack(message)
        return None if has_room else self._settles.wait_for_room()

    def _queue_ack(self, message: Message) -> bool:
        ack = QueuedAck(message.partition, message.delivery, message.id)
        return self._settles.ack(ack, covers=self.ack_mode == "client")

    def _queue_dups_ok_acks(self) -> bool:
        acks, self._dups_ok_acks = self._dups_ok_acks, []
        return all([self._queue_ack(each) for each in acks])

    async def _write_acks(self) -> None:
        """Write all acks, those of mode `dups_ok` too."""
        self._queue_dups_ok_acks()
        if len(self._settles):
            await self._settles.write(-1, b"")

    async def settle(
        self, message: Message, kind: str, confirm: bool, **fields: str | int | None
    ) -> None:
        """Settle a message. Programs call the methods of `Message` instead.

        Args:
            message: one that this consumer received.
            kind: `ack`, `release` or `reject`.
            confirm: wait until a worker has executed it.
            fields: further fields of the command.

        Raises:
            SettleRefused: the delivery has ended.
            NoAnswer: `confirm` is set and no worker answered in time.
            Closed: the consumer is closed.
        """
        if self.ack_mode == "none" and kind == "ack":
            return  # the dispatch itself settled it (R16)
        self._attachment.check()
        settle = {
            "type": kind, "queue": self.queue, "consumer": self.name, "message": message.id,
            "delivery": message.delivery, **fields,
        }  # fmt: skip
        raw = encode(settle)
        ended = self._end(message, kind)
        if self._session is not None:
            self._session.defer(self, settle)
            return
        with nullcontext() if message.span is None else message.span.settling(kind):
            await self._write(settle, raw, message.partition, confirm, ended)

    def _end(self, message: Message, kind: str) -> list[Message]:
        """Remove the messages that a settle ends from those held, and return them."""
        if message.delivery not in self._held:
            if self._is_closed:
                raise Closed(f"{self.name} is closed; its unsettled deliveries were returned")
            text = "the delivery has ended: it was settled or returned"
            raise SettleRefused("stale_delivery", message.id, text)
        if self.ack_mode != "client" or kind != "ack":
            ended = [self._held.pop(message.delivery)]
        else:
            together = self._session.consumers_beside(self) if self._session else [self]
            ended = [gone for each in together for gone in each.end_until(message.delivery)]
        if message.span is not None:
            _end_spans(ended)
        return ended

    def end_until(self, delivery: int) -> list[Message]:
        """Remove and return all held messages up to and including that delivery number."""
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
                await self._request(settle, partition)
            else:
                await self._settles.write(partition, raw)
        except Refused as refused:
            if refused.reason == "bad_command":  # the settle was wrong; the delivery stays open
                for each in ended:
                    each.settler.hold(each)
            raise SettleRefused(refused.reason, refused.about, refused.text) from None
        except BaseException as error:
            if not isinstance(error, NoAnswer):  # not known to be written: allow another attempt
                for each in ended:
                    each.settler.hold(each)
            raise

    async def _request(self, settle: Mapping[str, Any], partition: int) -> None:
        """Write a settle behind those that are queued, and wait until a worker has executed it."""
        key, reply = self._connection.expect_reply()
        try:
            await self._settles.write(partition, encode({**settle, "reply": key}))
            await self._connection.await_reply(reply)
        finally:
            self._connection.drop_reply(key)

    # --- held deliveries -------------------------------------------------------------------------

    def hold(self, message: Message) -> None:
        """Hold a message again whose settle did not take place."""
        self._held[message.delivery] = message

    async def snapshot(self) -> DispatchSnapshot:
        """Record what has been dispatched so far. Take it before a command returns it all."""
        return DispatchSnapshot(list(self._held), await self._attachment.end())

    def forget(self, snapshot: DispatchSnapshot) -> None:
        """Drop the deliveries of a snapshot: they have been returned."""
        _end_spans(self._held.pop(each) for each in snapshot.held if each in self._held)
        self._attachment.forget(snapshot.end)

    def _on_lost(self) -> None:
        """Drop all held deliveries: the consumer was detached and lost them."""
        self.losses += 1
        _end_spans(self._held.values())
        self._held.clear()
        self._dups_ok_acks.clear()
        self._settles.drop_acks()


def _end_spans(messages: Iterable[Message]) -> None:
    """End the spans of messages that are no longer held."""
    for each in messages:
        if each.span is not None:
            each.span.end()
