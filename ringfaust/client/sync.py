"""The client for programs without asyncio: the same classes with blocking methods.

Each object runs an event loop in its own thread, so heartbeats continue while the program works.
Use each consumer, producer or session from one thread only. The methods raise what the methods of
the same name in `ringfaust.client` raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from ringfaust.client.blocking import EventLoopThread, SyncResource, blocking, iterating
from ringfaust.client.connection import ConnectOptions
from ringfaust.client.consumer import RingConsumer as AsyncConsumer
from ringfaust.client.errors import Closed
from ringfaust.client.message import Message as AsyncMessage
from ringfaust.client.message import Received
from ringfaust.client.options import AttachOptions, ConsumerOptions
from ringfaust.client.owner import OWNER
from ringfaust.client.producer import ProducerOptions
from ringfaust.client.producer import RingProducer as AsyncProducer
from ringfaust.client.session import Session as AsyncSession
from ringfaust.client.sync_admin import Admin
from ringfaust.client.two_phase import TwoPhase as AsyncTwoPhase
from ringfaust.client.two_phase import TwoPhaseOptions

__all__ = ["Admin", "Message", "RingConsumer", "RingProducer", "Session", "TwoPhase"]


class Message(Received):
    """A received message; see `ringfaust.client.Message`."""

    __slots__ = ("_inner", "_loop")

    def __init__(self, inner: AsyncMessage, loop: EventLoopThread) -> None:
        """`inner`: the asyncio client's message. `loop`: the consumer's."""
        super().__init__(inner._record, inner._named)  # noqa: SLF001
        self._inner = inner
        self._loop = loop

    @property
    def body(self) -> Any:
        """The value as the consumer's `deserializer` reads it; None if there is no value."""
        return self._inner.body

    def ack(self, *, confirm: bool = False, xid: str = "", owner: str = OWNER) -> None:
        """Ack the message; see `ringfaust.client.Message.ack`."""
        if confirm or xid:
            self._loop.run(self._inner.ack(confirm=confirm, xid=xid, owner=owner))
        elif (waits := self._loop.call(self._inner.settler.ack, self._inner)) is not None:
            self._loop.run(waits)

    release = blocking(AsyncMessage.release)
    reject = blocking(AsyncMessage.reject)


class RingConsumer(SyncResource):
    """Consumes a queue; see `ringfaust.client.RingConsumer`.

    ::

        with RingConsumer("orders", credit=10) as consumer:
            for message in consumer:
                print(message.value)
                message.ack()
    """

    def __init__(self, queue: str = "", **options: Unpack[ConsumerOptions]) -> None:
        super().__init__()
        self._inner: AsyncConsumer = AsyncConsumer(queue, **options)

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self._inner.name

    @property
    def partition(self) -> int:
        """The partition of the queue; -1 before `start`."""
        return self._inner.partition

    def receive(self, timeout_ms: int | None = None) -> Message | None:
        """Wait for the next message and return it.

        In the modes `auto` and `dups_ok` this acks the previous message (R16).

        Args:
            timeout_ms: how long to wait, in milliseconds; None for no limit.

        Returns:
            The message; None if there was none in time.
        """
        found = self._loop.call(self._inner.take)
        if found is None:
            found = self._loop.run(self._inner.receive(timeout_ms))
        return None if found is None else Message(found, self._loop)

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the consumer is closed; waits for each without a limit."""
        while True:
            try:
                message = self.receive()
            except Closed:
                if self._inner._is_closed:  # noqa: SLF001
                    return
                raise
            if message is not None:
                yield message

    add_credit = blocking(AsyncConsumer.add_credit)
    flush = blocking(AsyncConsumer.flush)
    recover = blocking(AsyncConsumer.recover)


class RingProducer(SyncResource):
    """Sends messages; see `ringfaust.client.RingProducer`.

    ::

        with RingProducer() as producer:
            producer.send("orders", "a dozen eggs", priority=9, ttl_ms=60_000)
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        super().__init__()
        self._inner: AsyncProducer = AsyncProducer(**options)

    send = blocking(AsyncProducer.send)
    refusals = iterating(AsyncProducer.refusals)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all sends of the block take effect together or not at all (R80)."""
        with self._inner.collecting() as sent:  # in this thread, whose context its calls inherit
            yield
        self._loop.run(self._inner.write_together(sent))


class Session(SyncResource):
    """Sends and settles that take effect together; see `ringfaust.client.Session`.

    ::

        with Session() as session:
            for message in session.consumer("orders", credit=10):
                session.send("invoices", message.value)
                message.ack()
                session.commit()
    """

    def __init__(self, **options: Unpack[ConnectOptions]) -> None:
        super().__init__()
        self._inner: AsyncSession = AsyncSession(**options)

    def consumer(self, queue: str = "", **options: Unpack[AttachOptions]) -> RingConsumer:
        """Attach a consumer that belongs to the session and is closed with it."""
        return _SessionConsumer(self._loop.run(self._inner.consumer(queue, **options)), self._loop)

    send = blocking(AsyncSession.send)
    commit = blocking(AsyncSession.commit)
    rollback = blocking(AsyncSession.rollback)


class TwoPhase(SyncResource):
    """A distributed transaction (R81); see `ringfaust.client.TwoPhase`."""

    def __init__(self, xid: str, **options: Unpack[TwoPhaseOptions]) -> None:
        super().__init__()
        self._inner: AsyncTwoPhase = AsyncTwoPhase(xid, **options)
        self.xid = xid
        self.owner = self._inner.owner

    begin = blocking(AsyncTwoPhase.begin)
    prepare = blocking(AsyncTwoPhase.prepare)
    commit = blocking(AsyncTwoPhase.commit)
    rollback = blocking(AsyncTwoPhase.rollback)


class _SessionConsumer(RingConsumer):
    """A consumer that runs in its session's thread and is closed with it, or before it."""

    def __init__(self, inner: AsyncConsumer, loop: EventLoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def start(self) -> None:
        """Do nothing: the session has attached it."""

    def _end(self) -> None:
        """Let the thread go on: it is the session's."""
