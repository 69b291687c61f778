"""The effects of a step: each transition of a message and each answer, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringfaust.core.model import DeadReason, Delivery, EvictReason, Message, Refusal


class Added(NamedTuple):
    """A message entered its queue and is ready."""

    queue: str
    message: Message


class Scheduled(NamedTuple):
    """A message entered its queue and waits for its delivery time (R30)."""

    queue: str
    message: Message


class Due(NamedTuple):
    """A scheduled message became ready (R31)."""

    queue: str
    message: Message


class Dispatched(NamedTuple):
    """A message was dispatched to a consumer."""

    queue: str
    delivery: Delivery


class Acked(NamedTuple):
    """A delivery was accepted; its message left the queue."""

    queue: str
    delivery: Delivery


class Returned(NamedTuple):
    """A delivery ended and its message is ready again, or scheduled when `due_ms` > 0 (R20)."""

    queue: str
    delivery: Delivery
    message: Message
    due_ms: int


class Evicted(NamedTuple):
    """The ring evicted a message (R6)."""

    queue: str
    message: Message
    reason: EvictReason
    cause: str
    """Id of the message that needed the space; empty if there is none."""
    ring_size: int
    ready: int
    """How many messages were ready at that moment, without the evicted one."""
    at_ms: int
    payload: str
    """What the evicted record carries: full, reference or none."""


class Expired(NamedTuple):
    """A message expired (R50); it goes to the dead topic (R42)."""

    queue: str
    message: Message
    consumer: str
    """The last consumer that held it; empty: none."""
    delivery: int = 0
    """The delivery that ended, if the message expired when it was returned; else 0."""


class Lost(NamedTuple):
    """A non-persistent message is missing after a crash (R82)."""

    queue: str
    message: Message
    delivery: int = 0
    """The delivery that ended, if a consumer held the message; else 0."""


class Unrouted(NamedTuple):
    """A message was sent to an address, but none of its queues accepts it (R70)."""

    queue: str
    """The address."""
    message: Message


class Pending(NamedTuple):
    """A send or an ack waits for its distributed transaction to be decided (R81)."""

    queue: str
    xid: str
    about: str
    """The id of the message."""


class Decided(NamedTuple):
    """A distributed transaction was committed or rolled back (R81)."""

    queue: str
    """Always empty: the effect concerns the partition."""
    xid: str
    committed: bool


class Dead(NamedTuple):
    """A message is dead (R40, R41), or its queue refused it: then its sequence is 0 (R60)."""

    queue: str
    message: Message
    reason: DeadReason
    consumer: str
    text: str


class Removed(NamedTuple):
    """An operator removed a message (R34, R90)."""

    queue: str
    message: Message


class MovedOut(NamedTuple):
    """An operator moved a message to the queue `to` (R90)."""

    queue: str
    message: Message
    to: str


class Attached(NamedTuple):
    """A consumer attached, `active` or as a backup; also when a backup becomes active (R11)."""

    queue: str
    consumer: str
    active: bool
    priority: int


class Detached(NamedTuple):
    """A consumer detached, or timed out (R13)."""

    queue: str
    consumer: str
    timeout: bool


class Configured(NamedTuple):
    """Settings of a queue changed, or the queue was `created` (R90)."""

    queue: str
    settings: Mapping[str, object]
    created: bool


class Paused(NamedTuple):
    """Pulling or dispatch was paused, or resumed if not `paused` (R90)."""

    queue: str
    what: str
    paused: bool


class ConfiguredAddress(NamedTuple):
    """Settings of an address changed (R71)."""

    queue: str
    """The address."""
    settings: Mapping[str, object]


class Applied(NamedTuple):
    """The partition uses another configuration from here on (R128)."""

    queue: str
    """Always empty: the effect concerns the partition."""
    revision: int
    who: str
    """Who has applied it."""
    text: str
    """What it changes, or why."""


class Deleted(NamedTuple):
    """A queue was deleted; its final counts (R90)."""

    queue: str
    counts: Mapping[str, int]


class Refused(NamedTuple):
    """A command was refused and changed nothing (R103)."""

    queue: str
    reason: Refusal
    about: str
    """The message id or consumer name that the command was about."""
    text: str
    """What is wrong, and what would be valid."""
    delivery: int = 0
    """The delivery, if the command was about several and only this one was refused."""


Effect = (
    Added | Scheduled | Due | Dispatched | Acked | Returned | Evicted | Expired | Lost | Unrouted
    | Pending | Decided | Dead | Removed | MovedOut | Attached | Detached | Configured
    | ConfiguredAddress | Paused | Applied | Deleted | Refused
)  # fmt: skip
