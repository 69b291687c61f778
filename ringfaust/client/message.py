"""Messages as consumers receive them, and how they are settled."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from ringfaust.client.owner import OWNER
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Headers, InRecord
from ringfaust.spans import MessageSpan

Scalar = str | int | float | bool | None
"""The value of a property."""
_REASON_CHARS = 2_000
"""The most characters of the reason with which a message is rejected (R41)."""


def as_reason(text: str) -> str:
    """The text of an exception as a reason: at most 2,000 characters, all of which UTF-8 has.

    Half a surrogate pair, as a cut emoji leaves it, becomes its escape.
    """
    return _encodable(text)[:_REASON_CHARS]


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


class Received:
    """A received message. The methods of `Message` settle it.

    Most headers are read when somebody asks for them: few programs need all.
    """

    __slots__ = ("_named", "_record", "delivery", "id", "key", "partition", "value")

    def __init__(self, record: InRecord, named: Mapping[str, bytes]) -> None:
        """Read a message from a record of the dispatched topic.

        Args:
            record: the record.
            named: all of its headers by name.
        """
        self._record = record
        self._named = named
        self.id = named[h.ID].decode()
        """The message id: the producer's, or the topic/partition/offset of its record."""
        self.key = record.key
        self.value = record.value
        self.partition = record.partition
        """The partition of the application's topics in which the queue lives."""
        self.delivery = int(named[h.DELIVERY])
        """The number of this delivery."""

    def json(self) -> Any:
        """Return the value as JSON.

        Raises:
            ValueError: there is no value, or it is not JSON.
        """
        if self.value is None:
            raise ValueError(f"{self!r} has no value")
        return json.loads(self.value)

    @property
    def headers(self) -> Headers:
        """The producer's own headers as pairs, without those of ringfaust."""
        return tuple(pair for pair in self._record.headers if not pair[0].startswith(h.PREFIX))

    @property
    def properties(self) -> Mapping[str, Scalar]:
        """The properties that selectors test, beside the headers (R15)."""
        raw = self._named.get(h.PROPERTIES)
        return dict(json.loads(raw)) if raw else {}

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._named[h.QUEUE].decode()

    @property
    def sequence(self) -> int:
        """The message's number in its queue, counting up by one with each send."""
        return int(self._named[h.SEQUENCE])

    @property
    def priority(self) -> int:
        """0 to 9; 9 is delivered first (R14)."""
        return int(self._named[h.PRIORITY])

    @property
    def group(self) -> str:
        """The message group (R14); empty if there is none."""
        return self._named.get(h.GROUP, b"").decode()

    @property
    def enqueued_ms(self) -> int:
        """When it was sent, in milliseconds since 1970."""
        return int(self._named[h.ENQUEUED_MS])

    @property
    def expires_at_ms(self) -> int | None:
        """When it expires, in milliseconds since 1970; None if never (R50)."""
        raw = self._named.get(h.EXPIRES_AT_MS)
        return int(raw) if raw else None

    @property
    def source(self) -> str:
        """topic/partition/offset of the producer's record."""
        return self._named[h.SOURCE].decode()

    @property
    def attempt(self) -> int:
        """How many deliveries count as attempts, including this one (R40)."""
        return int(self._named[h.ATTEMPT])

    @property
    def handovers(self) -> int:
        """How many deliveries there were, including this one (R24)."""
        return int(self._named[h.HANDOVERS])

    @property
    def redelivered(self) -> bool:
        """True if it was delivered before, to this consumer or another (R24)."""
        return h.REDELIVERED in self._named

    def __repr__(self) -> str:
        """Show id, queue and delivery, but never the value."""
        again = ", redelivered" if self.redelivered else ""
        return f"<{type(self).__name__} {self.id} of {self.queue}, delivery {self.delivery}{again}>"


class Settler(Protocol):
    """The consumer that received a message and settles it."""

    deserializer: Callable[[bytes], Any]

    async def settle(
        self, message: Message, kind: str, confirm: bool, **fields: str | int | None
    ) -> None:
        """Settle the message; see `RingConsumer.settle`."""

    def ack(self, message: Message) -> Coroutine[Any, Any, None] | None:
        """Queue the ack of the message; see `RingConsumer.ack`."""

    def hold(self, message: Message) -> None:
        """Hold the message again because its settle could not be written."""


class Message(Received):
    """A received message and the methods that settle it.

    An ack is queued and written with others a few milliseconds later. If the program dies before
    that, the message is delivered again. `RingConsumer.flush` returns the refusals of queued acks.
    A release or reject returns when the brokers have stored it. With `confirm` a settle returns
    when a worker has executed it. All take effect in the order of the calls. In a session a settle
    takes effect at the commit, and `confirm` is ignored.

    Every settle raises:
        SettleRefused: the delivery has ended: it was settled or returned.
        NoAnswer: `confirm` is set and no worker answered in time.
        Closed: the consumer is closed.
        KafkaError: the brokers did not accept the command.
    """

    __slots__ = ("settler", "span")

    def __init__(self, record: InRecord, named: Mapping[str, bytes], settler: Settler) -> None:
        """Read a message from a record of the dispatched topic.

        Args:
            record: the record.
            named: all of its headers by name.
            settler: the consumer that settles the message.
        """
        super().__init__(record, named)
        self.settler = settler
        self.span: MessageSpan | None = None
        """Its span of OpenTelemetry, if the program traces."""

    @property
    def body(self) -> Any:
        """The value as the consumer's `deserializer` reads it; None if there is no value.

        It is read each time, and raises what the deserializer raises.
        """
        return None if self.value is None else self.settler.deserializer(self.value)

    async def ack(self, *, confirm: bool = False, xid: str = "", owner: str = OWNER) -> None:
        """Ack the message. In mode `client`, also ack all that were received before it (R16).

        Args:
            confirm: wait until a worker has executed it.
            xid: the distributed transaction to which the ack belongs (R81); see `TwoPhase`.
            owner: who began that transaction.
        """
        if xid:
            await self.settler.settle(self, "ack", confirm, xid=xid, owner=owner)
        elif confirm:
            await self.settler.settle(self, "ack", confirm)
        elif (waits := self.settler.ack(self)) is not None:
            await waits

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
        await self.settler.settle(self, "reject", confirm, text=_encodable(text))
