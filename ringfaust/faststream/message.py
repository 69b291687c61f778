"""Messages as FastStream's handlers get them, and how its acknowledgement settles them."""

from __future__ import annotations

import sys
from typing import Any

from faststream.message import StreamMessage
from faststream.message.utils import decode_message

from ringfaust.client import Message
from ringfaust.client.message import as_reason

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"
"""The headers that FastStream's Kafka brokers write, too."""


class RingMessage(StreamMessage[Message]):
    """A message of a queue; `raw_message` is ringfaust's own.

    Each of its methods settles the message once. A later call does nothing.
    """

    async def ack(self, *, confirm: bool = False) -> None:
        """Ack the message: it is done. See `Message.ack`."""
        if self.committed is None:
            await self.raw_message.ack(confirm=confirm)
        await super().ack()

    async def nack(self, *, delay_ms: int | None = None, confirm: bool = False) -> None:
        """Return the message to its queue, which counts the attempt; see `Message.release`.

        Args:
            delay_ms: time until it is delivered again; None for the queue's redelivery delay (R40).
            confirm: wait until a worker has executed it.
        """
        if self.committed is None:
            await self.raw_message.release(delay_ms=delay_ms, confirm=confirm)
        await super().nack()

    async def reject(self, text: str = "", *, confirm: bool = False) -> None:
        """Move the message to the dead topic (R41); see `Message.reject`.

        Args:
            text: the reason; by default the exception that is being handled.
            confirm: wait until a worker has executed it.
        """
        if self.committed is None:
            error = sys.exc_info()[1]
            if not text and error is not None:
                text = f"{type(error).__name__}: {error}"
            await self.raw_message.reject(as_reason(text), confirm=confirm)
        await super().reject()


async def parse(message: Message) -> RingMessage:
    """Return FastStream's view of a message."""
    headers = {name: (value or b"").decode(errors="replace") for name, value in message.headers}
    return RingMessage(
        raw_message=message,
        body=message.value or b"",
        headers=headers,
        content_type=headers.get(CONTENT_TYPE),
        correlation_id=headers.get(CORRELATION_ID),
        message_id=message.id,
    )


async def decode(message: StreamMessage[Any]) -> Any:
    """Return the body: JSON, text or bytes, by the content type or, without one, by trying."""
    return decode_message(message)
