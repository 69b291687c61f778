"""Messages as consumers receive them, and how they are settled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Headers, InRecord

Scalar = str | int | float | bool | None
"""The value of a property."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Received:
    """A received message. The methods of `Message` settle it."""

    id: str
    """The message id: the producer's, or the topic/partition/offset of its record."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The producer's own headers as pairs, without those of ringfaust."""
    properties: Mapping[str, Scalar]
    """The properties that selectors test, beside the headers (R15)."""
    queue: str
    partition: int
    """The partition of the application's topics in which the queue lives."""
    sequence: int
    """The message's number in its queue, counting up by one with each send."""
    priority: int
    """0 to 9; 9 is delivered first (R14)."""
    group: str
    """The message group (R14); empty if there is none."""
    enqueued_ms: int
    """When it was sent, in milliseconds since 1970."""
    expires_at_ms: int | None
    """When it expires, in milliseconds since 1970; None if never (R50)."""
    source: str
    """topic/partition/offset of the producer's record."""
    delivery: int
    """The number of this delivery."""
    attempt: int
    """How many deliveries count as attempts, including this one (R40)."""
    handovers: int
    """How many deliveries there were, including this one (R24)."""
    redelivered: bool
    """True if it was delivered before, to this consumer or another (R24)."""

    def __repr__(self) -> str:
        """Show id, queue and delivery, but never the value."""
        again = ", redelivered" if self.redelivered else ""
        return f"<{type(self).__name__} {self.id} of {self.queue}, delivery {self.delivery}{again}>"


class Settler(Protocol):
    """The consumer that received a message and settles it."""

    async def settle(
        self, message: Message, kind: str, confirm: bool, **fields: str | int | None
    ) -> None:
        """Settle the message; see `RingConsumer.settle`."""

    def hold(self, message: Message) -> None:
        """Hold the message again because its settle could not be written."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message(Received):
    """A received message and the methods that settle it.

    A settle returns when the brokers have stored it or, with `confirm`, when a worker has executed
    it. In a session it takes effect at the commit, and `confirm` is ignored.

    Every settle raises:
        SettleRefused: the delivery has ended: it was settled or returned.
        NoAnswer: `confirm` is set and no worker answered in time.
        Closed: the consumer is closed.
        KafkaError: the brokers did not accept the command.
    """

    settler: Settler = field(compare=False)

    async def ack(self, *, confirm: bool = False, xid: str = "") -> None:
        """Ack the message. In mode `client`, also ack all that were received before it (R16).

        Args:
            confirm: wait until a worker has executed it.
            xid: the distributed transaction to which the ack belongs (R81); see `TwoPhase`.
        """
        await self.settler.settle(self, "ack", confirm, xid=xid or None)

    async def release(self, *, delay_ms: int | None = None, confirm: bool = False) -> None:
        """Return the message to its queue (R23).

        Args:
            delay_ms: time until it is delivered again; None for the queue's redelivery delay (R40).
            confirm: wait until a worker has executed it.
        """
        await self.settler.settle(self, "release", confirm, delay_ms=delay_ms)

    async def reject(self, text: str = "", *, confirm: bool = False) -> None:
        """Move the message to the dead topic (R41).

        Args:
            text: the reason, of up to 2,000 characters.
            confirm: wait until a worker has executed it.
        """
        await self.settler.settle(self, "reject", confirm, text=text)

    @classmethod
    def read(cls, record: InRecord, headers: Mapping[str, bytes], settler: Settler) -> Self:
        """Read a message from a record of the dispatched topic.

        Args:
            record: the record.
            headers: all of its headers by name.
            settler: the consumer that settles the message.
        """
        expires_at = headers.get(h.EXPIRES_AT_MS)
        return cls(
            id=headers[h.ID].decode(),
            key=record.key,
            value=record.value,
            headers=tuple(pair for pair in record.headers if not pair[0].startswith(h.PREFIX)),
            properties=_properties(headers.get(h.PROPERTIES)),
            queue=headers[h.QUEUE].decode(),
            partition=record.partition,
            sequence=int(headers[h.SEQUENCE]),
            priority=int(headers[h.PRIORITY]),
            group=headers.get(h.GROUP, b"").decode(),
            enqueued_ms=int(headers[h.ENQUEUED_MS]),
            expires_at_ms=int(expires_at) if expires_at else None,
            source=headers[h.SOURCE].decode(),
            delivery=int(headers[h.DELIVERY]),
            attempt=int(headers[h.ATTEMPT]),
            handovers=int(headers[h.HANDOVERS]),
            redelivered=h.REDELIVERED in headers,
            settler=settler,
        )


def _properties(raw: bytes | None) -> dict[str, Any]:
    return dict(json.loads(raw)) if raw else {}
