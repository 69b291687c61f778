"""What the naive model keeps of one queue: lists and dicts, and `sorted` says what the order is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfaust.core.model import AckMode
from ringfaust.core.settings import QueueSpec
from tests.model.naive_selectors import selects

PAST = (
    "added", "acked", "evicted", "expired", "dead", "refused", "removed", "moved_out", "lost",
)  # fmt: skip


@dataclass(eq=False)
class Message:
    """A message; only its place and its hand-overs ever change."""

    id: str
    sequence: int
    priority: int
    sent_ms: int
    expires_ms: int
    due_ms: int
    group: str
    size_bytes: int
    payload: Any
    persistent: bool = True
    is_bodyless: bool = False
    """A crash took its body (R82)."""
    place: Any = None
    """Position: (0, due time, sequence) for what came due, (1, sequence) for the plain."""
    number: int = 0
    """What Artemis sorts by: the sequence of what was sent plainly, else 0."""
    turn: int = 0
    """With Artemis, while it waits to be redelivered: its turn in the set that came back."""
    attempts: int = 0
    handovers: int = 0
    holders: list[str] = field(default_factory=list)

    def is_expired(self, now: int) -> bool:
        return 0 < self.expires_ms <= now


@dataclass(eq=False)
class Consumer:
    """An attached consumer."""

    name: str
    order: int
    credit: int
    priority: int
    mode: AckMode
    session: str
    active: bool
    seen_ms: int
    selector: str = ""
    credit_bytes: int = 0


@dataclass(eq=False)
class Held:
    """A delivery that is not settled."""

    consumer: str
    message: Message
    number: int = 0
    xid: str = ""
    """Settled in that undecided transaction (R81)."""
    is_orphan: bool = False
    """So, and its consumer has left."""
    handed_ms: int = 0


class Queue:
    """One queue."""

    def __init__(self, name: str, own: Mapping[str, object], spec: QueueSpec) -> None:
        self.name = name
        self.own = dict(own)
        self.spec = spec
        self.ready: list[Message] = []
        self.scheduled: list[tuple[int, Message]] = []
        self.held: list[Held] = []
        """In the order they were handed over."""
        self.consumers: list[Consumer] = []
        self.owners: dict[str, str] = {}
        """Message group → the consumer that has it."""
        self.idle_groups: list[str] = []
        """Groups with an owner that lost their last message, in that order (R116)."""
        self.cursors: dict[int, tuple[int, int]] = {}
        """By consumer priority: attach order of who got the last delivery, how many in a row."""
        self.ended: dict[str, dict[str, str]] = {}
        """By consumer that ever attached and message id: why its delivery is no more."""
        self.counts: Counter[str] = Counter()
        self.sent: dict[str, tuple[int, int]] = {}
        """With a dedup window: when the last message of each id was sent (R119)."""
        self.sequences = 0
        self.orders = 0
        self.paused: set[str] = set()

    @property
    def as_artemis(self) -> bool:
        """Section 13."""
        return self.spec.compat == "artemis"

    def in_delivery_order(self) -> list[Message]:
        """R14: priority, then position."""
        return sorted(self.ready, key=lambda m: (-m.priority, m.place))

    def by_position(self) -> list[Message]:
        """The ready ones, whatever their priority."""
        return sorted(self.ready, key=lambda m: (m.place, m.sequence))

    def by_due_time(self) -> list[tuple[int, Message]]:
        """The scheduled ones with their due times."""
        return sorted(self.scheduled, key=lambda pair: (pair[0], pair[1].sequence))

    def expired(self, now: int) -> list[Message]:
        """What a sweep removes first (R32); with Artemis they have to be met (C1)."""
        if self.as_artemis:
            return []
        all_waiting = self.ready + [m for _, m in self.scheduled]
        late = [m for m in all_waiting if m.is_expired(now)]
        return sorted(late, key=lambda m: (m.expires_ms, m.sequence))

    def waiting(self) -> list[Message]:
        """Those that nobody holds."""
        return self.in_delivery_order() + [m for _, m in self.by_due_time()]

    def everything(self) -> list[Message]:
        """All that counts as `messages`."""
        held = [h.message for h in self.held]
        return self.ready + [m for _, m in self.scheduled] + held

    def exceeds(self, messages: int, size_bytes: int) -> bool:
        """Would it, with so much more, be over a limit (R60)?"""
        most, most_bytes = self.spec.max_messages, self.spec.max_bytes
        all_of_it = self.everything()
        return (most != -1 and len(all_of_it) + messages > most) or (
            most_bytes != -1 and sum(m.size_bytes for m in all_of_it) + size_bytes > most_bytes
        )

    def is_full(self) -> bool:
        return self.spec.ring_size != -1 and len(self.ready) >= self.spec.ring_size

    def is_over(self) -> bool:
        return self.spec.ring_size != -1 and len(self.ready) > self.spec.ring_size

    def least(self) -> Message:
        """The oldest of the lowest priority."""
        return sorted(self.ready, key=lambda m: (m.priority, m.place))[0]

    def victim(self) -> Message:
        """Who leaves a full ring (R3)."""
        if self.spec.evict == "head":
            return self.in_delivery_order()[0]
        if self.spec.evict == "lowest_priority":
            return self.least()
        return self.by_position()[0]

    def consumer(self, name: str) -> Consumer | None:
        return next((k for k in self.consumers if k.name == name), None)

    def held_by(self, name: str) -> list[Held]:
        """What it has not settled."""
        return [h for h in self.held if h.consumer == name and not h.xid]

    def has_room(self, k: Consumer) -> bool:
        """What is settled in an undecided transaction keeps its credit (R10, R80)."""
        own = [h for h in self.held if h.consumer == k.name and not h.is_orphan]
        own_bytes = sum(h.message.size_bytes for h in own)
        return len(own) < k.credit and (k.credit_bytes == 0 or own_bytes < k.credit_bytes)

    def taker(self, message: Message) -> Consumer | None:
        """Who gets the message, if anybody can take it (R11, R14, R15)."""
        able = [
            k
            for k in sorted(self.consumers, key=lambda k: k.order)
            if k.active
            and self.has_room(k)
            and (not message.group or self.owners.get(message.group, k.name) == k.name)
            and selects(k.selector, message)
        ]
        if not able:
            return None
        highest = max(k.priority for k in able)
        able = [k for k in able if k.priority == highest]
        last, in_a_row = self.cursors.get(highest, (0, 0))
        for k in able:
            if k.order == last and in_a_row < self.spec.batch:
                return k
        return next((k for k in able if k.order > last), able[0])

    def took(self, k: Consumer) -> None:
        """Every delivery moves the turn (R11)."""
        last, in_a_row = self.cursors.get(k.priority, (0, 0))
        goes_on = last == k.order and in_a_row < self.spec.batch
        self.cursors[k.priority] = (k.order, in_a_row + 1 if goes_on else 1)

    def all_counts(self) -> dict[str, int]:
        """The accounts (R100), `messages` too."""
        now = {
            "ready": len(self.ready),
            "delivering": len(self.held),
            "scheduled": len(self.scheduled),
        }
        return {
            **now,
            **{name: self.counts[name] for name in PAST},
            "messages": sum(now.values()),
        }
