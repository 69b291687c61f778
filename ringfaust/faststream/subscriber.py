"""Subscribers: each is a consumer of a queue, whose messages FastStream's handlers get."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from anyio import CancelScope
from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy, BaseMiddleware
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, SubscriberSpec

from ringfaust.cancellation import is_cancelled
from ringfaust.client import Message, RingConsumer
from ringfaust.client.brokers import CLOSE_TIMEOUT_S
from ringfaust.client.options import SubscriberOptions
from ringfaust.faststream.message import RingMessage, decode, parse


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """Which queue a subscriber consumes, and how."""

    queue: str
    max_workers: int
    options: SubscriberOptions

    def __post_init__(self) -> None:
        """Read messages as ours."""
        self.parser, self.decoder = parse, decode

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's, or its broker's, or: what fails goes to the dead topic."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.REJECT_ON_ERROR


class OwnCancellation(BaseMiddleware[Any, Any]):
    """Lets a CancelledError that is the handler's own count as its error.

    FastStream takes each for a stop, after which it settles nothing: the message would be held for
    as long as the program runs.
    """

    async def consume_scope(
        self, call_next: Callable[[Any], Awaitable[Any]], msg: StreamMessage[Any]
    ) -> Any:
        """Call the handler."""
        try:
            return await call_next(msg)
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise RuntimeError(f"the handler raised CancelledError: {error}") from error


class RingSubscriber(SubscriberUsecase[Message]):
    """Handles messages of a queue, so many at a time.

    It holds no more than it handles, unless it has a larger credit; the rest stays in the queue for
    other processes.
    """

    def __init__(
        self,
        config: SubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Message],
    ) -> None:
        super().__init__(config, specification, calls)
        self._queue = config.queue
        self._max_workers = config.max_workers
        self._options = config.options
        self._consumer: RingConsumer | None = None
        self._one_attaches = asyncio.Lock()
        self._receiving: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        """The calls that have not returned."""

    @property
    def queue(self) -> str:
        """The queue's name, or the address of a subscription."""
        return f"{self._outer_config.prefix}{self._queue or self._options['address']}"

    @property
    def is_well(self) -> bool:
        """Whether it receives messages, or has no handler that would get them."""
        receiving, consumer = self._receiving, self._consumer
        is_receiving = receiving is not None and not receiving.done()
        return not self.calls or (is_receiving and consumer is not None and consumer.is_attached)

    async def start(self) -> None:
        """Attach, and begin to handle messages.

        Raises:
            ClientError, KafkaError: see `RingConsumer.start`.
        """
        await super().start()
        self._post_start()
        if self.calls:
            consumer = await self._attached()
            self._receiving = asyncio.create_task(self._receive(consumer))
            self._receiving.add_done_callback(self._on_end)

    async def stop(self) -> None:
        """Begin nothing more, wait `graceful_timeout` for handlers that have begun, and detach.

        Those that have not returned then are cancelled, and their messages go back without an
        attempt counted (R40).
        """
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.cancel()
            await asyncio.wait([receiving])
        try:
            await super().stop()
        finally:
            with CancelScope(shield=True):  # a stop that is cancelled detaches, too
                await self._detach()

    async def _detach(self) -> None:
        calls = self._tasks - {asyncio.current_task()}  # a handler may stop its own subscriber
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=CLOSE_TIMEOUT_S)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()

    async def consume(self, msg: Message) -> Any:
        """Handle a message, in the trace of its sender."""
        with nullcontext() if msg.span is None else msg.span.current():
            return await super().consume(msg)

    async def get_one(self, *, timeout: float = 5.0) -> RingMessage | None:
        """Wait for a message, which the program settles itself.

        Args:
            timeout: how long, in seconds.

        Returns:
            The message; None if there was none in time.
        """
        message = await (await self._attached()).receive(round(timeout * 1000))
        return None if message is None else await self._viewed(message)

    async def __aiter__(self) -> AsyncIterator[RingMessage]:
        """Iterate over messages, which the program settles itself."""
        async for message in await self._attached():
            yield await self._viewed(message)

    def get_log_context(self, message: StreamMessage[Message] | None) -> dict[str, str]:
        """What log lines say of a message."""
        return {"queue": self.queue, **super().get_log_context(message)}

    def _make_response_publisher(self, message: StreamMessage[Message]) -> Sequence[PublisherProto]:
        return ()  # our messages never ask for a reply

    async def _attached(self) -> RingConsumer:
        async with self._one_attaches:
            if self._consumer is None:
                where = self._outer_config.options  # type: ignore[attr-defined]
                named = {"queue" if self._queue else "address": self.queue}
                consumer = RingConsumer(**{**where, **self._options, **named})
                await consumer.start()
                self._consumer = consumer
            return self._consumer

    async def _receive(self, consumer: RingConsumer) -> None:
        free = asyncio.Semaphore(self._max_workers)  # beside the credit: a call may outlive it
        while True:
            await free.acquire()
            call = asyncio.create_task(self.consume(await consumer.receive()))
            self._tasks.add(call)
            call.add_done_callback(self._tasks.discard)
            call.add_done_callback(lambda _: free.release())

    def _on_end(self, receiving: asyncio.Task[None]) -> None:
        """Let the app exit with an error in its log when the consumer cannot go on."""
        if receiving.cancelled() or (error := receiving.exception()) is None:
            return
        text = f"`{self.queue}` cannot be consumed any more, and the app stops: {error}"
        self._log(logging.CRITICAL, text)
        if app := self._outer_config.context.get("app"):
            app.exit()

    async def _viewed(self, message: Message) -> RingMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        middlewares = (each(message, context=context) for each in self._broker_middlewares)
        viewed = await process_msg(
            message, middlewares=middlewares, parser=parser, decoder=decoder
        )  # fmt: skip
        assert isinstance(viewed, RingMessage)
        return viewed


@dataclass(kw_only=True)
class SubscriberSpecificationSettings(SubscriberSpecificationConfig):
    """What AsyncAPI says of a subscriber."""

    queue: str


class RingSubscriberSpecification(SubscriberSpecification[Any, SubscriberSpecificationSettings]):
    """A subscriber in AsyncAPI documents."""

    @property
    def _queue(self) -> str:
        return f"{self._outer_config.prefix}{self.config.queue}"

    @property
    def channel_labels(self) -> list[str]:
        """The queue."""
        return [self._queue]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Its channel: the queue, and what the handlers take."""
        payload = resolve_payloads(self.get_payloads())
        message = MessageSpec(title=f"{self.name}:Message", payload=payload)
        return {
            self.name: SubscriberSpec(
                address=self._queue,
                description=self.description,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }
