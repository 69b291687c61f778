"""Create the values that each message needs, in a fraction of the time of calling their classes.

They take all fields by position (ADR 6, ADR 38).
"""

from __future__ import annotations

from typing import Any, Final

from ringfaust.core import limits
from ringfaust.core.commands import Send
from ringfaust.core.create import create
from ringfaust.core.effects import Acked, Added, Dispatched, Due, Evicted
from ringfaust.core.model import Delivery, EvictReason, Message, Stage

_create: Final[Any] = create
_MESSAGE: Final = Message
_DELIVERY: Final = Delivery
_SEND: Final = Send
_ADDED: Final = Added
_DUE: Final = Due
_EVICTED: Final = Evicted
_DISPATCHED: Final = Dispatched
_ACKED: Final = Acked
"""mypyc looks up the names of another module at each use."""


def new_message(
    id_: str, sequence: int, position: int, priority: int, enqueued_ms: int, expires_at_ms: int,
    due_ms: int, group: str, attempts: int, handovers: int, holders: tuple[str, ...],
    size_bytes: int, payload: Any, persistent: bool, is_bodyless: bool,
) -> Message:  # fmt: skip
    """Create a `Message`."""
    return _create(  # type: ignore[no-any-return]
        _MESSAGE, id_, sequence, position, priority, enqueued_ms, expires_at_ms, due_ms, group,
        attempts, handovers, holders, size_bytes, payload, persistent, is_bodyless,
    )  # fmt: skip


def held_by(message: Message, consumer: str) -> Message:
    """The message as it is delivered to a consumer (R24, R40, R42)."""
    holders: tuple[str, ...] = (consumer,)
    if message.holders:
        others = tuple([name for name in message.holders if name != consumer])
        holders = (*others[1 - limits.HOLDERS :], consumer)
    return new_message(
        message.id, message.sequence, message.position, message.priority, message.enqueued_ms,
        message.expires_at_ms, message.due_ms, message.group, message.attempts + 1,
        message.handovers + 1, holders, message.size_bytes, message.payload, message.persistent,
        message.is_bodyless,
    )  # fmt: skip


def at_position(message: Message, position: int) -> Message:
    """The message as it is ready at a position."""
    return new_message(
        message.id, message.sequence, position, message.priority, message.enqueued_ms,
        message.expires_at_ms, message.due_ms, message.group, message.attempts, message.handovers,
        message.holders, message.size_bytes, message.payload, message.persistent,
        message.is_bodyless,
    )  # fmt: skip


def new_delivery(number: int, consumer: str, message: Message, handed_ms: int) -> Delivery:
    """Create a `Delivery` that no transaction has settled."""
    return _create(_DELIVERY, number, consumer, message, handed_ms, "", False)  # type: ignore[no-any-return]


def new_send(
    queue: str, id_: str, sent_ms: int, priority: int, size_bytes: int, payload: Any
) -> Send:
    """Create a `Send` of which nothing else was asked."""
    return _create(  # type: ignore[no-any-return]
        _SEND, queue, id_, sent_ms, priority, 0, 0, "", size_bytes, payload, True, "", 0, "", ""
    )


def unsent(send: Send) -> Message:
    """The message of a send that has no place in a queue; its sequence is 0."""
    return Message(
        send.id, 0, 0, send.priority, send.sent_ms, send.expires_at_ms, send.due_ms, send.group,
        0, 0, (), send.size_bytes, send.payload, send.persistent,
    )  # fmt: skip


def send_of(message: Message, queue: str, sent_ms: int, due_ms: int = 0) -> Send:
    """A send of an existing message: one that was retained, moved, or held by a transaction."""
    return Send(
        queue, message.id, sent_ms, message.priority, due_ms, message.expires_at_ms,
        message.group, message.size_bytes, message.payload, message.persistent,
    )  # fmt: skip


def waiting_send(stage: Stage) -> Send:
    """The send that a stage has kept until the queue was filled (R71, R114)."""
    message, redrives, redrive_of, _ = stage.args
    send = send_of(message, stage.queue, message.enqueued_ms, message.due_ms)
    return send._replace(redrives=redrives, redrive_of=redrive_of)


def added(queue: str, message: Message) -> Added:
    """Create an `Added`."""
    return _create(_ADDED, queue, message)  # type: ignore[no-any-return]


def due(queue: str, message: Message) -> Due:
    """Create a `Due`."""
    return _create(_DUE, queue, message)  # type: ignore[no-any-return]


def evicted(
    queue: str, message: Message, reason: EvictReason, cause: str, ring_size: int, ready: int,
    at_ms: int, payload: str,
) -> Evicted:  # fmt: skip
    """Create an `Evicted`."""
    return _create(  # type: ignore[no-any-return]
        _EVICTED, queue, message, reason, cause, ring_size, ready, at_ms, payload
    )


def dispatched(queue: str, delivery: Delivery) -> Dispatched:
    """Create a `Dispatched`."""
    return _create(_DISPATCHED, queue, delivery)  # type: ignore[no-any-return]


def acked(queue: str, delivery: Delivery) -> Acked:
    """Create an `Acked`."""
    return _create(_ACKED, queue, delivery)  # type: ignore[no-any-return]
