"""A producer of messages for queues."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Unpack

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import ConsumerStoppedError

from ringfaust.client.brokers import stop
from ringfaust.client.connection import Connection, ConnectOptions, refuse_unknown
from ringfaust.client.errors import ClientError, Refused
from ringfaust.client.outgoing import OutgoingMessage, SendOptions, Value, write_json
from ringfaust.client.resource import AsyncResource
from ringfaust.client.transactions import ClientTransactions
from ringfaust.protocol.names import client_transactional_id
from ringfaust.protocol.records import Role
from ringfaust.spans import open_spans

_REMEMBERED = 100_000
"""How many ids of sent messages are remembered, to recognize their refusals."""


@dataclass(slots=True, eq=False)
class _Transaction:
    """What the block of a transaction has sent."""

    producer: RingProducer
    sent: list[OutgoingMessage] = field(default_factory=list)
    is_open: bool = True
    """False: its block has ended. A task that it has started may still run."""


_entered: ContextVar[tuple[_Transaction, ...]] = ContextVar("transactions", default=())
"""Those in whose blocks the present task is, or was when it was started."""


class ProducerOptions(ConnectOptions, total=False):
    """Options of a producer."""

    serializer: Callable[[Any], bytes]
    """Turns values into bytes that are neither text nor bytes; default JSON."""
    watch_refusals: bool
    """Read the replies topic, which `refusals` needs (R62); default False."""
    any_topic: bool
    """Also send to topics that no route of the application reads; default False."""


class RingProducer(AsyncResource):
    """Sends messages to the topics that routes of `queues.yaml` read.

    Any Kafka producer can send to a queue; this one offers the options of a message by name::

        async with RingProducer() as producer:
            await producer.send("orders", "a dozen eggs", priority=9, ttl_ms=60_000)

    Args:
        options: see `ConnectOptions` and `ProducerOptions`; all have defaults.

    Raises:
        BadArgument: an option is not valid.
        TypeError: there is no such option.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        refuse_unknown(options, ProducerOptions)
        self._connection = Connection(options)
        self._serializer = options.get("serializer", write_json)
        self._watches = options.get("watch_refusals", False)
        self._is_routed = not options.get("any_topic", False)
        self._replies: AIOKafkaConsumer | None = None
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._transactions = ClientTransactions(
            self._connection.brokers,
            client_transactional_id(self._connection.application, self._connection.name),
        )
        self._made = 0

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaError: the brokers cannot be reached or refuse the client.
            ClientError: `watch_refusals` is set and the application has no topics.
        """
        await self._connection.start()
        try:
            if self._watches:
                self._replies = await self._connection.reader(Role.REPLIES)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Wait until the brokers have stored what was sent, and disconnect."""
        async with AsyncExitStack() as then:
            then.push_async_callback(self._connection.close)
            if self._replies is not None:
                then.push_async_callback(stop, self._replies)
            await self._transactions.close()

    async def send(self, topic: str, value: Value, **options: Unpack[SendOptions]) -> str:
        """Send a message. Returns when the brokers have stored it.

        In a transaction it returns at once, and the message is written with the others at the end.

        Args:
            topic: a topic that a route of `queues.yaml` reads.
            value: the message; text is UTF-8 encoded, and a mapping or a list becomes JSON unless
                the producer has another `serializer`. None sends a key without a value.
            options: see `SendOptions`.

        Returns:
            The message id.

        Raises:
            BadArgument: a worker would not accept the message; nothing was sent.
            NoTopic: the topic does not exist.
            Unrouted: no route of the workers that run reads the topic, or it is one of ringfaust's
                own. The first send to a topic asks the brokers, and later ones do not.
            Closed: the producer is not started or already closed.
            KafkaError: the brokers did not accept the record.
        """
        if (spans := open_spans()) is None:
            return await self._send(topic, value, **options)
        with spans.sending(topic):
            return await self._send(topic, value, **options)

    async def _send(self, topic: str, value: Value, **options: Unpack[SendOptions]) -> str:
        sent = OutgoingMessage.of(topic, value, self._serializer, **options)
        await self._connection.topics.check(
            topic, options.get("partition"), is_routed=self._is_routed
        )
        transaction = self._open_transaction()
        if self._watches or transaction is not None:
            sent = sent.with_id(self._new_id())
            self._remember(sent.id)
        if transaction is not None:
            transaction.sent.append(sent)
            return sent.id
        return sent.id_at(await self._connection.write(sent.after(0)))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Make all sends of the block take effect together or not at all (R80).

        The messages are written and committed at the end of the block; an exception drops them.
        Sends of tasks that are started in the block take part, those of other tasks do not: each
        task can have a transaction of its own.

        Raises:
            ClientError: the task is in a transaction of this producer already.
            OutcomeUnknown: the brokers failed during the commit.
            KafkaError: the brokers failed before the commit; nothing takes effect.
        """
        with self.collecting() as sent:
            yield
        await self.write_together(sent)

    @contextmanager
    def collecting(self) -> Iterator[list[OutgoingMessage]]:
        """Collect the sends of the block. Programs call `transaction` instead.

        Raises:
            ClientError: the task is in a transaction of this producer already.
        """
        if self._open_transaction() is not None:
            raise ClientError("a transaction of this producer is open; use another producer")
        mine = _Transaction(self)
        _entered.set((*_entered.get(), mine))
        try:
            yield mine.sent
        finally:
            mine.is_open = False
            _entered.set(tuple(each for each in _entered.get() if each is not mine))

    async def write_together(self, sent: list[OutgoingMessage]) -> None:
        """Write what was collected. Programs call `transaction` instead."""
        if sent:
            await self._transactions.write([each.now() for each in sent])

    def _open_transaction(self) -> _Transaction | None:
        """The transaction of this producer in whose block the present task is."""
        mine = (each for each in _entered.get() if each.producer is self and each.is_open)
        return next(mine, None)

    async def refusals(self) -> AsyncIterator[Refused]:
        """Yield the refusals of this producer's messages as they happen, since the start (R62).

        `about` is the message id. Refusals of the last 100,000 messages are recognized. A refused
        message is in the dead topic, unless it is a `duplicate`: then its queue has it (R119).

        Raises:
            ClientError: the producer is not started or has no `watch_refusals=True`.
        """
        if self._replies is None:
            raise ClientError("create the producer with watch_refusals=True, and start it")
        try:
            async for record in self._replies:
                if record.key.decode() in self._sent:
                    body = json.loads(record.value)
                    yield Refused(body["reason"], body["about"], body["text"])
        except ConsumerStoppedError:
            return

    def _new_id(self) -> str:
        self._made += 1
        return f"{self._connection.name}/{self._made}"

    def _remember(self, message_id: str) -> None:
        if self._watches:
            self._sent[message_id] = None
            if len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)
