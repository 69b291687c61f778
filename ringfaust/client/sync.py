"""The client without asyncio: the same names, for programs that wait.

The event loop runs in a thread of its own, so heartbeats go on whatever the program does. A
consumer, producer or session is for one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from ringfaust.client.connection import ConnectOptions
from ringfaust.client.consumer import RingConsumer as AsyncConsumer
from ringfaust.client.errors import Closed, Refused, SettleRefused
from ringfaust.client.message import Message as AsyncMessage
from ringfaust.client.message import Received
from ringfaust.client.options import AttachOptions, ConsumerOptions
from ringfaust.client.outgoing import SendOptions
from ringfaust.client.producer import ProducerOptions
from ringfaust.client.producer import RingProducer as AsyncProducer
from ringfaust.client.session import Session as AsyncSession
from ringfaust.client.two_phase import TwoPhase as AsyncTwoPhase
from ringfaust.client.two_phase import TwoPhaseOptions

T = TypeVar("T")


class _EventLoopThread:
    """An event loop in a thread of its own, from `open` to `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    def open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="ringfaust", daemon=True)
        self._thread.start()

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """Its result, when it is done. Ctrl-C cancels it."""
        if self._loop is None:
            task.close()
            raise Closed("it is not started, or closed")
        future = asyncio.run_coroutine_threadsafe(task, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()


class _SyncResource:
    """Starts and closes what it is the face of, in a thread of its own."""

    _inner: AsyncConsumer | AsyncProducer | AsyncSession | AsyncTwoPhase

    def __init__(self) -> None:
        self._loop = _EventLoopThread()

    def start(self) -> None:
        """See the one of asyncio."""
        self._enter()

    def close(self) -> None:
        """See the one of asyncio."""
        self._exit(None, None, None)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit(kind, error, trace)

    def _enter(self) -> None:
        self._loop.open()
        try:
            self._loop.run(self._inner.start())
        except BaseException:
            self._loop.close()
            raise

    def _exit(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._loop.is_open:
            return
        try:
            self._loop.run(self._inner.__aexit__(kind, error, trace))
        finally:
            self._loop.close()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message(Received):
    """A message that was handed to a consumer; see `ringfaust.client.Message`."""

    inner: AsyncMessage = field(compare=False)
    run: Callable[[Coroutine[Any, Any, None]], None] = field(compare=False)

    def ack(self, *, confirm: bool = False, xid: str = "") -> None:
        """Done with it (R16)."""
        self.run(self.inner.ack(confirm=confirm, xid=xid))

    def release(self, *, delay_ms: int | None = None, confirm: bool = False) -> None:
        """Give it back (R23), to be delivered again after the delay."""
        self.run(self.inner.release(delay_ms=delay_ms, confirm=confirm))

    def reject(self, text: str = "", *, confirm: bool = False) -> None:
        """To the dead topic with it (R41)."""
        self.run(self.inner.reject(text, confirm=confirm))


class RingConsumer(_SyncResource):
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
        """Its own."""
        return self._inner.name

    @property
    def partition(self) -> int:
        """Where the queue lives; -1 before the start."""
        return self._inner.partition

    def receive(self, timeout_ms: int | None = None) -> Message | None:
        """The next message, as soon as there is one; None if there is none in time."""

        async def wait() -> AsyncMessage | None:
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    return await self._inner.receive()
            except TimeoutError:
                return None

        found = self._loop.run(wait())
        if found is None:
            return None
        said = {each.name: getattr(found, each.name) for each in fields(Received)}
        return Message(**said, inner=found, run=self._loop.run)

    def __iter__(self) -> Iterator[Message]:
        while (message := self.receive()) is not None:
            yield message

    def add_credit(self, add: int) -> None:
        """Take so many more unsettled messages from now on (R10)."""
        self._loop.run(self._inner.add_credit(add))

    def recover(self) -> None:
        """Give all back that it holds, and stay attached (R20)."""
        self._loop.run(self._inner.recover())


class RingProducer(_SyncResource):
    """Sends messages; see `ringfaust.client.RingProducer`.

    ::

        with RingProducer() as producer:
            producer.send("orders", "a dozen eggs", priority=9, ttl_ms=60_000)
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        super().__init__()
        self._inner: AsyncProducer = AsyncProducer(**options)

    def send(self, topic: str, value: str | bytes | None, **options: Unpack[SendOptions]) -> str:
        """Send a message; returns its id when the brokers have it."""
        return self._loop.run(self._inner.send(topic, value, **options))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is sent in the block takes effect together, or none of it (R80)."""
        opened = self._inner.transaction()
        self._loop.run(opened.__aenter__())
        try:
            yield
        except BaseException as error:
            if not self._loop.run(opened.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._loop.run(opened.__aexit__(None, None, None))

    def refusals(self) -> Iterator[Refused]:
        """Messages of this producer that a queue refused, as it happens (R62)."""
        refusals = self._inner.refusals()

        async def step() -> Refused | None:
            return await anext(refusals, None)

        while (refused := self._loop.run(step())) is not None:
            yield refused


class Session(_SyncResource):
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
        """Attach a consumer; it is closed with the session."""
        return _SessionConsumer(self._loop.run(self._inner.consumer(queue, **options)), self._loop)

    def send(self, topic: str, value: str | bytes | None, **options: Unpack[SendOptions]) -> str:
        """Send a message at the commit; its id."""
        return self._loop.run(self._inner.send(topic, value, **options))

    def commit(self, *, confirm: bool = False) -> list[SettleRefused]:
        """Have all that was sent and settled since the last decision take effect."""
        return self._loop.run(self._inner.commit(confirm=confirm))

    def rollback(self) -> None:
        """Forget what was sent and settled, and give back all that the consumers hold."""
        self._loop.run(self._inner.rollback())


class TwoPhase(_SyncResource):
    """A distributed transaction (R81); see `ringfaust.client.TwoPhase`."""

    def __init__(self, xid: str, **options: Unpack[TwoPhaseOptions]) -> None:
        super().__init__()
        self._inner: AsyncTwoPhase = AsyncTwoPhase(xid, **options)
        self.xid = xid

    def begin(self) -> None:
        """Open it."""
        self._loop.run(self._inner.begin())

    def prepare(self) -> None:
        """From here on it survives restarts, until it is decided."""
        self._loop.run(self._inner.prepare())

    def commit(self) -> None:
        """All that waits for it takes effect."""
        self._loop.run(self._inner.commit())

    def rollback(self) -> None:
        """Nothing of it takes effect; what was acked in it comes back."""
        self._loop.run(self._inner.rollback())


class _SessionConsumer(RingConsumer):
    """Runs in its session's thread, and is closed with it."""

    def __init__(self, inner: AsyncConsumer, loop: _EventLoopThread) -> None:
        self._inner = inner
        self._loop = loop
