"""What may go out: each transition of a message, and each answer, in the order they happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringfaust.core.model import DeadReason, Delivery, EvictReason, Message, Refusal


class Added(NamedTuple):
    """A message entered its queue, plainly."""

    queue: str
    message: Message


class Scheduled(NamedTuple):
    """A message entered its queue and waits for its time (R30)."""

    queue: str
    message: Message


class Due(NamedTuple):
    """A scheduled message became ready (R31)."""

    queue: str
    message: Message


class Dispatched(NamedTuple):
    """A message was handed to a consumer."""

    queue: str
    delivery: Delivery


class Acked(NamedTuple):
    """A delivery was accepted; its message has left."""

    queue: str
    delivery: Delivery


class Returned(NamedTuple):
    """A delivery ended and its message is ready again, or scheduled when `due_ms` > 0 (R20)."""

    queue: str
    delivery: Delivery
    message: Message
    due_ms: int


class Evicted(NamedTuple):
    """A message left by the ring (R6)."""

    queue: str
    message: Message
    reason: EvictReason
    cause: str
    """Id of the message that needed the place; empty where none did."""
    ring_size: int
    ready: int
    """How many were ready at that moment, the evicted one not counted."""
    at_ms: int
    payload: str
    """What the record shall carry: full, reference, none."""


class Expired(NamedTuple):
    """A message outlived its time (R50); it goes to the dead topic (R42)."""

    queue: str
    message: Message
    consumer: str
    """Who held it last, if anybody did."""
    delivery: int = 0
    """The delivery that ended with it, if it expired as it came back."""


class Lost(NamedTuple):
    """A message that was not persistent is missing after a crash (R82)."""

    queue: str
    message: Message


class Unrouted(NamedTuple):
    """A message was sent to an address, and none of its queues wanted it (R70)."""

    queue: str
    """The address."""
    message: Message


class Pending(NamedTuple):
    """A send or an ack waits for the decision about its distributed transaction (R81)."""

    queue: str
    xid: str
    about: str
    """The message's id."""


class Decided(NamedTuple):
    """A distributed transaction was committed or rolled back (R81)."""

    queue: str
    """Empty: it is about the partition."""
    xid: str
    committed: bool


class Dead(NamedTuple):
    """A message was given up (R40, R41), or refused by its queue: then its sequence is 0 (R60)."""

    queue: str
    message: Message
    reason: DeadReason
    consumer: str
    text: str


class Removed(NamedTuple):
    """An operator took a message out (R34, R90)."""

    queue: str
    message: Message


class MovedOut(NamedTuple):
    """An operator moved a message to the queue `to` (R90)."""

    queue: str
    message: Message
    to: str


class Attached(NamedTuple):
    """A consumer joined, `active` or as a backup; also when a backup takes over (R11)."""

    queue: str
    consumer: str
    active: bool
    priority: int


class Detached(NamedTuple):
    """A consumer left, by itself or for its silence (R13)."""

    queue: str
    consumer: str
    timeout: bool


class Configured(NamedTuple):
    """Settings of a queue changed; also its making, with `created` (R90)."""

    queue: str
    settings: Mapping[str, object]
    created: bool


class Paused(NamedTuple):
    """Pulling or dispatch was stopped, or goes on when not `paused` (R90)."""

    queue: str
    what: str
    paused: bool


class ConfiguredAddress(NamedTuple):
    """Settings of an address changed (R71)."""

    queue: str
    """The address."""
    settings: Mapping[str, object]


class Deleted(NamedTuple):
    """A queue ended; its last accounts (R90)."""

    queue: str
    counts: Mapping[str, int]


class Refused(NamedTuple):
    """A command was refused and changed nothing (R103)."""

    queue: str
    reason: Refusal
    about: str
    """The message's or consumer's name that it was about."""
    text: str
    """What was wrong, and what would be right."""


Effect = (
    Added | Scheduled | Due | Dispatched | Acked | Returned | Evicted | Expired | Lost | Unrouted
    | Pending | Decided | Dead | Removed | MovedOut | Attached | Detached | Configured
    | ConfiguredAddress | Paused | Deleted | Refused
)  # fmt: skip
