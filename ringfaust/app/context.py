"""What a handler and a middleware get beside the body of a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Unpack

from ringfaust.client import ClientError, Message, RingProducer
from ringfaust.client.outgoing import SendOptions, Value


@dataclass
class Context:
    """The message that is being handled, and what a handler may want to do meanwhile."""

    message: Message
    """The message, with `id`, `headers`, `attempt` and the rest. A handler that settles it itself
    is not acked when it returns."""
    body: Any
    """What the handler gets: a middleware may replace it."""
    producer: RingProducer
    """The app's producer."""
    loop: asyncio.AbstractEventLoop
    """The app's event loop."""

    async def send(self, topic: str, value: Value, **options: Unpack[SendOptions]) -> str:
        """Send a message at once, also if the handler fails later. See `RingProducer.send`."""
        return await self.producer.send(topic, value, **options)

    def send_blocking(self, topic: str, value: Value, **options: Unpack[SendOptions]) -> str:
        """Do the same from a handler that is a plain function.

        Raises:
            ClientError: it is called in a coroutine, for which it would wait.
        """
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self.loop:
                raise ClientError("send_blocking is for plain functions; await send in a coroutine")
        sending = self.producer.send(topic, value, **options)
        return asyncio.run_coroutine_threadsafe(sending, self.loop).result()


CallNext = Callable[[], Awaitable[None]]
"""Calls the next middleware or, after the last, the handler. It raises what that raises."""
Middleware = Callable[[Context, CallNext], Awaitable[None]]
"""A coroutine function around each call of a handler."""
