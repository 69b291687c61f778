"""`RingApp`: handlers of messages, and their life from start to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from ringfaust.app.context import Middleware
from ringfaust.app.handler import Deserializer, Handler
from ringfaust.app.health import Health
from ringfaust.app.subscriber import Retries, RunningSubscriber, Subscriber
from ringfaust.client import BadArgument, ClientError, RingConsumer, RingProducer
from ringfaust.client.connection import ConnectOptions, refuse_unknown
from ringfaust.client.errors import whole
from ringfaust.client.options import SubscriberOptions, held_by_handler
from ringfaust.client.resource import AsyncResource
from ringfaust.core import limits

log = logging.getLogger(__name__)

GRACE_S = 20.0
"""How long a stop waits for handlers that have begun: less than the 30 s that Kubernetes gives."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


class RingApp(AsyncResource):
    """Handlers of the messages of an application's queues.

    ::

        app = RingApp("shop")


        @app.subscriber("orders", concurrency=8, retries={ConnectionError: 5_000})
        async def charge(order: Order) -> None:
            await charge_card(order.card, order.total)

    `ringfaust run shop:app` runs it; so do `async with app` and `await app.run()`.

    Args:
        application: `application` in worker.yaml, whose queues it reads.
        grace_s: how long a stop waits for handlers that have begun, in seconds.
        options: see `ConnectOptions`; all have defaults.

    Raises:
        BadArgument: `grace_s` is negative.
        TypeError: there is no such option.
    """

    def __init__(
        self,
        application: str = "ringfaust",
        /,
        *,
        grace_s: float = GRACE_S,
        **options: Unpack[ConnectOptions],
    ) -> None:
        refuse_unknown(options, ConnectOptions)
        if grace_s < 0:
            raise BadArgument(f"grace_s must be 0 or more, not {grace_s}")
        self.options: ConnectOptions = {"application": application}
        """How its clients connect, from the next start on."""
        self.options.update(options)
        self.grace_s = grace_s
        """How long a stop waits for handlers that have begun, in seconds."""
        self._subscribers: list[Subscriber] = []
        self._middlewares: list[Middleware] = []
        self._producer: RingProducer | None = None
        self._running: list[RunningSubscriber] = []
        self._stopping = asyncio.Event()

    # --- declaring -------------------------------------------------------------------------------

    def subscriber(
        self,
        queue: str = "",
        *,
        concurrency: int = 1,
        deserializer: Deserializer | None = None,
        retries: Retries | None = None,
        **options: Unpack[SubscriberOptions],
    ) -> Callable[[_Function], _Function]:
        """Call the decorated function for each message of a queue.

        The message is acked when the function returns. After an exception of `retries` it goes back
        to its queue, which moves it to the dead topic once its `max_attempts` are used up. After
        any other exception it goes to the dead topic at once, with the exception as the reason.

        Args:
            queue: the queue's name; leave it empty with `address`.
            concurrency: how many messages this process handles at a time. It holds no more, unless
                `credit` says so.
            deserializer: reads the body; default: see `Handler.read`.
            retries: by exception, the milliseconds until the message is delivered again; None: as
                its queue says. The class that is nearest to the exception counts.
            options: see `SubscriberOptions`.

        Raises:
            BadArgument: an argument is not valid, or the function takes others than a body and a
                context.
            TypeError: there is no such option.
        """
        refuse_unknown(options, SubscriberOptions)
        options = held_by_handler(options, concurrency, "concurrency")
        for kind, delay_ms in (retries or {}).items():
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise BadArgument(f"retries: {kind!r} is not a class of exceptions")
            if delay_ms is not None:
                whole(f"retries: the delay of {kind.__name__}", delay_ms, 0, limits.TIME_MS)

        def register(function: _Function) -> _Function:
            handler = Handler(function, deserializer)
            consumer = {"queue": queue, **options}
            RingConsumer(queue, **options)  # refuses now what is not valid
            name = queue or options["address"]
            subscriber = Subscriber(name, consumer, handler, concurrency, retries or {})
            self._subscribers.append(subscriber)
            return function

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """Call the decorated coroutine function around each handler. The first is the outermost.

        ::

            @app.middleware
            async def timed(context: Context, call_next: CallNext) -> None:
                began_s = time.monotonic()
                await call_next()
                print(context.message.id, time.monotonic() - began_s)
        """
        self._middlewares.append(function)
        return function

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it subscribes to. Those of an address get their names at the start."""
        return tuple(each.queue for each in self._running or self._subscribers)

    # --- running ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Attach all subscribers, and begin to handle messages.

        Raises:
            ClientError: it runs already, or has no subscribers.
            Refused: a worker refused a subscriber, for example with `unknown_queue`.
            NoAnswer: no worker answered in time.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        if self._producer is not None:
            raise ClientError("the app runs already")
        if not self._subscribers:
            raise ClientError("the app has no subscribers; decorate one with @subscriber")
        producer = RingProducer(**self.options, any_topic=True)
        await producer.start()
        self._producer = producer
        connect: Mapping[str, Any] = self.options
        try:
            self._running = [
                RunningSubscriber(each, connect, self._middlewares, producer)
                for each in self._subscribers
            ]
            for each in self._running:
                await each.start()
        except BaseException:
            await self._close(0.0)
            raise

    def stop(self) -> None:
        """Let `run` end. A second call does not wait for handlers any more."""
        if self._stopping.is_set():
            for running in self._running:
                for call in running.calls:
                    call.cancel()
        self._stopping.set()

    async def run(self) -> None:
        """Handle messages until `stop`.

        Raises:
            ClientError, KafkaError: see `start`; or a consumer cannot go on.
        """
        stopping = asyncio.create_task(self._stopping.wait())
        starting = asyncio.create_task(self.start())
        try:
            await asyncio.wait([stopping, starting], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return
            await starting
            ends = [each.end for each in self._running]
            waited: list[asyncio.Future[Any]] = [stopping, *ends]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            starting.cancel()
            await asyncio.wait([starting])
            await self.close()
        for end in ends:
            if end.done():
                end.result()

    async def close(self) -> None:
        """Begin nothing more, wait `grace_s` for handlers that have begun, and disconnect.

        The handlers that have not returned then are cancelled, and their messages go back without
        an attempt counted (R40). A plain function cannot be cancelled: its thread is left behind.
        """
        try:
            await self._close(self.grace_s)
        finally:
            self._stopping = asyncio.Event()  # it can be started again, also in another loop

    async def _close(self, grace_s: float) -> None:
        try:
            await self._finish(grace_s)
        finally:
            closing = [each.close() for each in self._running]
            self._running = []
            results = await asyncio.gather(*closing, return_exceptions=True)
            producer, self._producer = self._producer, None
            if producer is not None:
                await producer.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _finish(self, grace_s: float) -> None:
        """Begin nothing more, and wait for the handlers that have begun."""
        for each in self._running:
            await each.stop_receiving()
        calls = {call for each in self._running for call in each.calls}
        if calls and grace_s:
            log.info("waiting for %d handlers, at most %g s", len(calls), grace_s)
            _, unfinished = await asyncio.wait(calls, timeout=grace_s)
            if unfinished:
                log.warning(
                    "%d handlers have not finished; their messages go back", len(unfinished)
                )

    def health(self) -> Health:
        """How its subscribers are, in this process."""
        found = tuple(each.health() for each in self._running)
        is_ok = bool(found) and all(each.is_attached for each in found)
        return Health(is_ok, found)
