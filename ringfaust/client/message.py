"""What a consumer is given: a message, read from its dispatched record, and how to settle it."""

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
    """A message as it was dispatched. Settle it by the methods of `Message`."""

    id: str
    """The message id: the producer's, or topic/partition/offset of its record."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The producer's, as pairs; without ours."""
    properties: Mapping[str, Scalar]
    """What selectors see beside the headers."""
    queue: str
    partition: int
    """Of our topics: where the queue lives."""
    sequence: int
    """Its number in the queue."""
    priority: int
    """0 to 9, 9 first (R14)."""
    group: str
    """The message group (R14); empty: none."""
    enqueued_ms: int
    """When it was sent, ms since 1970."""
    expires_at_ms: int | None
    """None: never (R50)."""
    source: str
    """topic/partition/offset of the producer's record."""
    delivery: int
    """The number of this delivery."""
    attempt: int
    """Hand-overs that count, this one included (R40)."""
    handovers: int
    """All hand-overs, this one included (R24)."""
    redelivered: bool
    """It was handed over before, to this consumer or to another (R24)."""

    def __repr__(self) -> str:
        again = ", redelivered" if self.redelivered else ""
        return f"<{type(self).__name__} {self.id} of {self.queue}, delivery {self.delivery}{again}>"


class Settler(Protocol):
    """Who handed a message out, and takes its settle."""

    async def settle(
        self, message: Message, kind: str, confirm: bool, **fields: str | int | None
    ) -> None:
        """Write a settle."""

    def hold(self, message: Message) -> None:
        """A settle could not be written: the message is not settled."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message(Received):
    """A message that was handed to a consumer, which settles it.

    Each settle returns when the brokers have it; with `confirm` when a worker has done it. In a
    session it takes effect at the commit.

    Raises:
        SettleRefused: the delivery has ended: it is settled, or was given back meanwhile.
        NoAnswer: `confirm`, and no worker answered in time.
        Closed: its consumer is closed.
    """

    settler: Settler = field(compare=False)

    async def ack(self, *, confirm: bool = False, xid: str = "") -> None:
        """Done with it (R16). In mode `client` also with all that was handed over before.

        Args:
            confirm: wait until a worker has done it.
            xid: the distributed transaction that it waits for (R81); see `TwoPhase`.
        """
        await self.settler.settle(self, "ack", confirm, xid=xid or None)

    async def release(self, *, delay_ms: int | None = None, confirm: bool = False) -> None:
        """Give it back (R23).

        Args:
            delay_ms: after which it is delivered again; None: the queue's redelivery delay (R40).
            confirm: wait until a worker has done it.
        """
        await self.settler.settle(self, "release", confirm, delay_ms=delay_ms)

    async def reject(self, text: str = "", *, confirm: bool = False) -> None:
        """To the dead topic with it, with the reason in up to 2,000 characters (R41)."""
        await self.settler.settle(self, "reject", confirm, text=text)

    @classmethod
    def read(cls, record: InRecord, headers: Mapping[str, bytes], settler: Settler) -> Self:
        """The message of a dispatched record. `headers`: ours among its own, by name."""
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
