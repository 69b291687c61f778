"""A subscriber: the consumer of one queue, whose messages are handled concurrently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringfaust.app.context import CallNext, Context, Middleware
from ringfaust.app.handler import BadBody, Handler
from ringfaust.app.health import SubscriberHealth
from ringfaust.cancellation import is_cancelled
from ringfaust.client import Closed, Message, RingConsumer, RingProducer, SettleRefused
from ringfaust.client.brokers import CLOSE_TIMEOUT_S
from ringfaust.client.message import as_reason

log = logging.getLogger(__name__)

Retries = Mapping[type[Exception], int | None]
"""By exception: how long a message waits for its next delivery, in milliseconds; None: as long as
its queue says (R40)."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """What a queue's messages are handled by, and how."""

    queue: str
    """For the log."""
    consumer: Mapping[str, Any]
    """Options of its `RingConsumer`."""
    handler: Handler
    concurrency: int
    """How many messages are handled at a time."""
    retries: Retries
    """The exceptions after which a message is delivered again."""

    def delay_ms(self, error: BaseException) -> tuple[bool, int | None]:
        """Whether a message is delivered again after an exception, and when; by its class."""
        for kind in type(error).__mro__:
            if kind in self.retries:
                return True, self.retries[kind]
        return False, None


class RunningSubscriber:
    """A subscriber at work: its consumer, and the calls that have not returned."""

    def __init__(
        self,
        subscriber: Subscriber,
        connect: Mapping[str, Any],
        middlewares: Sequence[Middleware],
        producer: RingProducer,
    ) -> None:
        """Attach nothing yet."""
        self._subscriber = subscriber
        self._middlewares = middlewares
        self._producer = producer
        self._consumer = RingConsumer(**{**connect, **subscriber.consumer})
        self.queue = self._consumer.queue
        self._free = asyncio.Semaphore(subscriber.concurrency)
        """Beside the credit: a call may outlive its delivery."""
        self._calls: set[asyncio.Task[None]] = set()
        self._receiving: asyncio.Task[None] | None = None
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done with the error after which no more messages are handled."""
        self._acked = self._retried = self._dead = 0

    async def start(self) -> None:
        """Attach, and begin to handle messages.

        Raises:
            ClientError, KafkaError: see `RingConsumer.start`.
        """
        await self._consumer.start()
        self._receiving = asyncio.create_task(self._receive())
        self._receiving.add_done_callback(self._on_error)

    async def stop_receiving(self) -> None:
        """Begin nothing more."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait([self._receiving])

    @property
    def calls(self) -> set[asyncio.Task[None]]:
        """The calls that have not returned."""
        return set(self._calls)

    async def close(self) -> None:
        """Cancel the calls that have not returned, and detach: their messages go back (R40)."""
        await self.stop_receiving()
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=CLOSE_TIMEOUT_S)
        await self._consumer.close()

    def health(self) -> SubscriberHealth:
        """How it is."""
        is_receiving = self._receiving is not None and not self._receiving.done()
        return SubscriberHealth(
            queue=self.queue,
            is_attached=is_receiving and self._consumer.is_attached and not self.end.done(),
            handling=len(self._calls),
            acked=self._acked,
            retried=self._retried,
            dead=self._dead,
        )

    async def _receive(self) -> None:
        while True:
            await self._free.acquire()
            message = await self._consumer.receive()
            call = asyncio.create_task(self._handle(message))
            self._calls.add(call)
            call.add_done_callback(self._on_done)

    def _on_done(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._free.release()
        self._on_error(call)

    def _on_error(self, task: asyncio.Task[None]) -> None:
        """End with the error of a task: the consumer cannot go on."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not self.end.done():
            log.error("%s: no more messages are handled: %s", self.queue, error or repr(error))
            self.end.set_exception(error)
            self.end.exception()  # mark it as retrieved: without `run` nobody waits for it

    async def _handle(self, message: Message) -> None:
        try:
            await self._call(message)
        except (SettleRefused, Closed) as late:
            log.warning(
                "%s: message %s was handled and is delivered again: %s",
                self.queue, message.id, late,
            )  # fmt: skip

    async def _call(self, message: Message) -> None:
        """Handle a message, and settle it by what its handler does."""
        try:
            body = self._subscriber.handler.read(message.value)
        except BadBody as error:
            log.warning("%s: message %s is dead: %s", self.queue, message.id, error)
            await self._reject(message, str(error))
            return
        losses = self._consumer.losses
        context = Context(message, body, self._producer, asyncio.get_running_loop())
        try:
            with nullcontext() if message.span is None else message.span.current():
                await self._chain(context)
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise  # it is not settled: it goes back when the consumer detaches
            await self._failed(message, error)
        except (Exception, SystemExit) as error:
            await self._failed(message, error)
        else:
            if self._consumer.losses != losses:
                text = "its consumer was detached meanwhile"
                raise SettleRefused("stale_delivery", message.id, text)
            if self._consumer.holds(message):
                await message.ack()
                self._acked += 1

    async def _chain(self, context: Context) -> None:
        """Call the handler within the middlewares, of which the first is the outermost."""
        call: CallNext = partial(self._subscriber.handler.call, context)
        for middleware in reversed(self._middlewares):
            call = partial(middleware, context, call)
        await call()

    async def _failed(self, message: Message, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        if not self._consumer.holds(message):
            log.warning("%s: message %s is not held any more: %s", self.queue, message.id, text)
            return
        is_retried, delay_ms = self._subscriber.delay_ms(error)
        if is_retried:
            log.warning(
                "%s: message %s, attempt %d failed; the queue delivers it again unless its "
                "max_attempts are used up: %s",
                self.queue, message.id, message.attempt, text,
            )  # fmt: skip
            await message.release(delay_ms=delay_ms)
            self._retried += 1
        else:
            log.error("%s: message %s is dead:", self.queue, message.id, exc_info=error)
            await self._reject(message, text)

    async def _reject(self, message: Message, text: str) -> None:
        await message.reject(as_reason(text))
        self._dead += 1
