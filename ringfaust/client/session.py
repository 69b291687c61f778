"""Sessions: sends and settles that take effect together or not at all (R80)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, Unpack

from ringfaust.client.brokers import CLOSE_TIMEOUT_S
from ringfaust.client.connection import ConnectOptions, encode
from ringfaust.client.consumer import RingConsumer
from ringfaust.client.errors import Refused, SettleRefused
from ringfaust.client.options import AttachOptions
from ringfaust.client.outgoing import OutgoingMessage, SendOptions, Value
from ringfaust.client.resource import Connected
from ringfaust.client.transactions import ClientTransactions
from ringfaust.protocol.names import client_transactional_id
from ringfaust.protocol.records import OutgoingRecord, Role

log = logging.getLogger(__name__)

_NONE_ATTACHED = "bad_command"
"""The reason with which a worker refuses a rollback if no consumer of the session is attached."""

_Replies = dict[str, asyncio.Future[dict[str, Any]]]
"""Those that a commit waits for, by key."""
_DELIVERY = ("queue", "consumer", "message", "delivery")
"""The fields of a settle that name the delivery."""


class _PendingSettle(NamedTuple):
    """A settle that waits for the commit."""

    consumer: RingConsumer
    losses: int
    """How often the consumer had lost its deliveries when it settled."""
    command: Mapping[str, Any]


class Session(Connected):
    """A local transaction: what it sends and settles takes effect at the commit.

    ::

        async with Session() as session:
            orders = await session.consumer("orders", credit=10)
            async for message in orders:
                await session.send("invoices", message.value)
                await message.ack()
                await session.commit()

    An exception that leaves the block rolls the session back. What is not committed at the end of
    the block is dropped. Do not send to a queue and consume it in the same session: Kafka keeps no
    order between topics.

    Args:
        options: see `ConnectOptions`; all have defaults.

    Raises:
        BadArgument: an option is not valid.
        TypeError: there is no such option.
    """

    def __init__(self, **options: Unpack[ConnectOptions]) -> None:
        super().__init__(options)
        self.name = self.connection.name
        self._transactions = ClientTransactions(
            self.connection.brokers, client_transactional_id(self.connection.application, self.name)
        )
        self._consumers: list[RingConsumer] = []
        self._pending: list[OutgoingMessage | _PendingSettle] = []
        self._made = 0

    async def close(self) -> None:
        """Detach the consumers and disconnect. Drops what is not committed."""
        self._pending.clear()
        async with AsyncExitStack() as then:
            then.push_async_callback(super().close)
            then.push_async_callback(self._transactions.close)
            for consumer in self._consumers:
                then.push_async_callback(consumer.close)

    async def _failed(self) -> None:
        try:
            # Once it is written, the worker executes it before the detach.
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.rollback()
        except Exception:  # the caller's own error is the one to raise
            log.warning("session %s could not roll back", self.name, exc_info=True)

    async def consumer(self, queue: str = "", **options: Unpack[AttachOptions]) -> RingConsumer:
        """Attach a consumer that belongs to the session and is closed with it.

        Its settles wait for the commit, and their `confirm` is ignored.

        Args:
            queue: the queue's name; leave it empty with `address`.
            options: see `AttachOptions`.

        Raises:
            BadArgument: an option is not valid.
            Refused: the worker refused it, for example with `unknown_queue`.
            NoAnswer: no worker answered in time.
            KafkaError: the brokers refuse the client.
        """
        consumer = RingConsumer(queue, session=self, **options)
        await consumer.start()
        self._consumers.append(consumer)
        return consumer

    async def send(self, topic: str, value: Value, **options: Unpack[SendOptions]) -> str:
        """Send a message at the commit; its delay and ttl count from now. See `RingProducer.send`.

        Returns:
            The message id.

        Raises:
            BadArgument: a worker would not accept the message.
            NoTopic: the topic does not exist.
            Unrouted: the topic is one of ringfaust's own. One that no route reads is not refused.
            Closed: the session is not started or already closed.
        """
        self._made += 1
        sent = OutgoingMessage.of(topic, value, **options).with_id(f"{self.name}/{self._made}")
        await self.connection.topics.check(topic, options.get("partition"))
        self._pending.append(sent)
        return sent.id

    async def commit(self, *, confirm: bool = False) -> list[SettleRefused]:
        """Make all sends and settles since the last commit or rollback take effect.

        Args:
            confirm: wait until the workers have executed the settles.

        Returns:
            With `confirm`, the settles that were refused because their delivery had ended.
            Everything else took effect.

        Raises:
            SettleRefused: a consumer was closed or timed out, and its deliveries were returned.
                Nothing took effect; roll back.
            OutcomeUnknown: the brokers failed during the commit.
            KafkaError: the brokers failed before the commit. Nothing took effect; commit again or
                roll back.
            NoAnswer: `confirm` is set and a worker did not answer in time. Everything takes effect,
                now or later.
        """
        if not self._pending:
            return []
        waiting: _Replies = {}
        try:
            await self._write(waiting if confirm else None)
            refused = [await self._refusal(each) for each in waiting.values()]
        finally:
            for key in waiting:
                self.connection.drop_reply(key)
        return [each for each in refused if each is not None]

    async def _write(self, waiting: _Replies | None) -> None:
        """Write what is pending in one transaction. If it has no effect, it stays pending.

        `waiting` gets the replies to wait for; None: nobody wants any.
        """
        pending = self._pending
        records = [self._record_of(each, waiting) for each in pending]
        self._pending = []
        try:
            await self._transactions.write(records)
        except BaseException:
            if not self._transactions.may_be_committed:
                self._pending[:0] = pending
            raise

    def _record_of(
        self,
        each: OutgoingMessage | _PendingSettle,
        waiting: _Replies | None,
    ) -> OutgoingRecord:
        if isinstance(each, OutgoingMessage):
            return each.now()
        _check_held(each)
        command = dict(each.command)
        if waiting is not None:
            command["reply"], future = self.connection.expect_reply()
            waiting[command["reply"]] = future
        topic = self.connection.topic(Role.CONTROL)
        return OutgoingRecord(topic, encode(command), partition=each.consumer.partition)

    async def _refusal(self, reply: asyncio.Future[dict[str, Any]]) -> SettleRefused | None:
        try:
            await self.connection.await_reply(reply)
        except Refused as no:
            return SettleRefused(no.reason, no.about, no.text)
        return None

    async def rollback(self) -> None:
        """Drop what was sent and settled, and return all deliveries of the session's consumers.

        They are then redelivered.

        Raises:
            NoAnswer: no worker answered in time. It is unknown whether it took effect.
            KafkaError: the brokers refuse the client.
        """
        acks = [  # in Artemis a rollback counts the attempts of those that were acked (C9)
            each
            for each in self._pending
            if isinstance(each, _PendingSettle) and each.command["type"] == "ack"
        ]
        self._pending.clear()
        await self._transactions.settle()  # a worker reads nothing that is behind it
        attached = [each for each in self._consumers if each.is_attached]
        snapshots = [(consumer, await consumer.snapshot()) for consumer in attached]
        for partition in {consumer.partition for consumer in self._consumers}:
            acked = [
                {name: each.command[name] for name in _DELIVERY}
                for each in acks
                if each.consumer.partition == partition
            ]
            command = {"type": "rollback", "session": self.name, "acked": acked}
            try:
                await self.connection.request(partition, command)
            except Refused as refused:
                if refused.reason != _NONE_ATTACHED:
                    raise  # otherwise all consumers have timed out and hold nothing
        for consumer, snapshot in snapshots:
            consumer.forget(snapshot)

    # --- for its consumers -----------------------------------------------------------------------

    def defer(self, consumer: RingConsumer, settle: Mapping[str, Any]) -> None:
        """Buffer a settle until the commit."""
        self._pending.append(_PendingSettle(consumer, consumer.losses, settle))

    def leave(self, consumer: RingConsumer) -> None:
        """Go on without a consumer that is closed: what it held has been returned."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def consumers_beside(self, consumer: RingConsumer) -> list[RingConsumer]:
        """Return the consumers in the same partition, which an ack in mode `client` covers."""
        return [each for each in self._consumers if each.partition == consumer.partition]


def _check_held(settle: _PendingSettle) -> None:
    if settle.losses != settle.consumer.losses:
        text = (
            f"{settle.consumer.name} was closed or timed out, and its deliveries were returned; "
            "nothing was committed: roll back"
        )
        raise SettleRefused("stale_delivery", settle.command["message"], text)
