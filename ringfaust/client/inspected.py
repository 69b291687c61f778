"""What an `Admin` returns about queues, consumers and messages."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from ringfaust.protocol.lifecycle import HELD_STATES, TOTALS, HeldState

Pausable = Literal["dispatch", "pulling"]
"""What `pause` stops: handing out messages, or reading new ones (R90)."""

COUNTS = (*HELD_STATES, "messages", *TOTALS)
"""The counts of a queue (R100). The first four say what it holds, the others only grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """A queue in a list of queues."""

    queue: str
    partition: int
    """The partition in which it lives. A guess if it has had no message yet."""
    ring_size: int
    """How many messages may be ready; -1: no limit."""
    counts: Mapping[str, int]
    """By the names in `COUNTS`."""
    paused: tuple[Pausable, ...]
    consumers: int
    """How many are attached."""

    @classmethod
    def read(cls, partition: int, fields: Mapping[str, Any]) -> Self:
        """Build it from an entry in the answer to `list_queues`."""
        return cls(
            queue=fields["queue"],
            partition=partition,
            ring_size=fields["ring_size"],
            counts=_counts(fields["counts"]),
            paused=tuple(fields["paused"]),
            consumers=fields["consumers"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDetails:
    """An attached consumer."""

    consumer: str
    active: bool
    """False for a backup (R11)."""
    priority: int
    ack_mode: str
    credit: int
    credit_bytes: int
    unsettled: int
    """How many messages it holds."""
    unsettled_bytes: int
    session: str
    """Empty: none."""
    selector: str
    silent_ms: int
    """Time since its last sign of life (R13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDetails:
    """One queue: what it holds, how it is set, and who consumes it."""

    queue: str
    partition: int
    also_in: tuple[int, ...]
    """Other partitions with a queue of this name: its records came to several (R113)."""
    counts: Mapping[str, int]
    """By the names in `COUNTS`."""
    settings: Mapping[str, Any]
    """Every setting in effect, by name."""
    own: Mapping[str, Any]
    """Of these, what was set while it ran, and wins over the configuration."""
    own_since_ms: Mapping[str, int]
    """When each of those was set, in ms since 1970. Not known of what was set before feature
    level 2 (R129)."""
    paused: tuple[Pausable, ...]
    pulled: bool
    """False while messages for it wait in their topic (R60, R90)."""
    size_bytes: int
    """Of all its messages."""
    oldest_ms: int
    """Send time of its oldest ready message, in ms since 1970; 0: none is ready."""
    consumers: tuple[ConsumerDetails, ...]
    """The first 1,000."""

    @classmethod
    def read(
        cls, queue: str, partition: int, also_in: tuple[int, ...], answer: Mapping[str, Any]
    ) -> Self:
        """Build it from the answer to `list`."""
        return cls(
            queue=queue,
            partition=partition,
            also_in=also_in,
            counts=_counts(answer["counts"]),
            settings=answer["settings"],
            own=answer.get("own", {}),
            own_since_ms=answer.get("own_since_ms", {}),
            paused=tuple(answer["paused"]),
            pulled=answer["pulled"],
            size_bytes=answer["bytes"],
            oldest_ms=answer["oldest_ms"],
            consumers=tuple(ConsumerDetails(**each) for each in answer["consumers"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSince:
    """Since when the configuration gives a queue the present value of a setting."""

    revision: int
    """The `apply` that brought it."""
    who: str
    """Who applied it."""
    applied_ms: int
    """In ms since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The beginning of a message's key, value or header."""

    start: bytes
    size_bytes: int
    """The length of all of it."""

    @property
    def is_whole(self) -> bool:
        """Whether `start` is all of it."""
        return len(self.start) == self.size_bytes

    @classmethod
    def read(cls, fields: Mapping[str, Any] | None) -> Self | None:
        """Build it from a field in the answer to `browse`."""
        if fields is None:
            return None
        text = fields.get("text")
        start = base64.b64decode(fields["base64"]) if text is None else text.encode()
        return cls(start=start, size_bytes=fields["bytes"])


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetails:
    """A message in a queue. Times are in ms since 1970; 0 means never or none."""

    id: str
    queue: str
    state: HeldState
    sequence: int
    priority: int
    enqueued_ms: int
    expires_at_ms: int
    due_ms: int
    group: str
    attempts: int
    """Deliveries that count against `max_attempts` (R40)."""
    handovers: int
    """All its deliveries (R24)."""
    size_bytes: int
    persistent: bool
    source: str
    """Where its record is: topic/partition/offset."""
    key: Excerpt | None
    value: Excerpt | None
    headers: Mapping[str, Excerpt | None]
    consumer: str = ""
    """Who holds it; empty: nobody."""
    delivery: int = 0
    handed_ms: int = 0
    xid: str = ""
    """The undecided distributed transaction that has settled it (R81)."""

    @classmethod
    def read(cls, queue: str, state: HeldState, fields: Mapping[str, Any]) -> Self:
        """Build it from an entry in the answer to `browse`."""
        plain = dict(fields)
        headers = plain.pop("headers")
        return cls(
            queue=queue,
            state=state,
            size_bytes=plain.pop("bytes"),
            key=Excerpt.read(plain.pop("key")),
            value=Excerpt.read(plain.pop("value")),
            headers={name: Excerpt.read(value) for name, value in headers.items()},
            **plain,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Some messages of a queue, in order."""

    messages: tuple[MessageDetails, ...]
    after: str | None
    """Where the next page begins; None: this is the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidDetails:
    """An undecided distributed transaction (R81)."""

    xid: str
    prepared: bool
    """Whether it is prepared in every partition that has it."""
    operations: int
    """Sends and acks in it."""
    began_ms: int
    """When it was begun, by the workers' time, in ms since 1970; 0: by a worker that did not store
    it."""
    partitions: tuple[int, ...]
    """The partitions that have it."""


def _counts(found: Mapping[str, int]) -> dict[str, int]:
    return {name: found.get(name, 0) for name in COUNTS}
