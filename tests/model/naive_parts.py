"""The naive model's small parts: how a message moves, and who decides that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfaust.core import commands as c
from ringfaust.core.model import AckMode
from ringfaust.core.settings import AddressSpec, QueueSpec
from ringfaust.errors import BadSetting
from tests.model.naive_queue import Consumer, Held, Message, Queue

Fact = tuple[Any, ...]
"""An effect in comparable form: what happened, the queue, and so on."""
Declared = Mapping[str, Mapping[str, Any]]


class Refuse(Exception):
    """The command is refused: for what reason."""


def need(holds: object) -> None:
    """Otherwise the command is no good."""
    if not holds:
        raise Refuse("bad_command")


@dataclass(eq=False)
class Address:
    """An address (R70, R71)."""

    name: str
    own: dict[str, object]
    spec: AddressSpec
    members: list[str] = field(default_factory=list)
    has_ring: bool | None = None
    """With Artemis: made with the address, which is by the first send, or never (C11)."""
    kept: list[c.Send] = field(default_factory=list)


@dataclass(eq=False)
class Xid:
    """An undecided distributed transaction (R81)."""

    name: str
    owner: str
    until: int
    """When it is rolled back unless it is prepared."""
    is_prepared: bool = False
    operations: list[c.Send | tuple[Queue, Held]] = field(default_factory=list)


class Parts:
    """The queues of one partition and what can be done in them."""

    def __init__(
        self, queues: Declared, addresses: Declared | None = None, settings: Declared | None = None
    ) -> None:
        """`settings`: fields of an address' queues, or of a queue, by name (R72)."""
        self.declared = queues
        self.declared_addresses = addresses or {}
        self.settings = settings or {}
        self.revision = 0
        """Of the configuration that was applied last (R128)."""
        self.applied: tuple[int, Mapping[str, Any], str] | None = None
        """Its number, its content, and who has applied it."""
        self.queues: dict[str, Queue] = {}
        self.addresses: dict[str, Address] = {}
        self.xids: list[Xid] = []
        """In the order they began."""
        self.now = 0
        self.before = 0
        """The time to go back to if the command is refused."""
        self.facts: list[Fact] = []
        self.apart = 0
        """How many of the facts stay if the command is refused."""
        self.given: list[tuple[str, Held]] = []
        """Deliveries of the last step, by queue name."""

    def say(self, what: str, q: Queue, *rest: Any) -> None:
        self.facts.append((what, q.name, *rest))

    def step_apart(self) -> None:
        """What has happened so far stays, also if the command is refused."""
        self.apart = len(self.facts)
        self.before = self.now

    # --- finding ----------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        address, is_part, _ = name.partition("::")
        if name not in self.queues and is_part:
            self.address(address)
        elif name not in self.queues and name in self.declared:
            if self.make(name, {}).consumers:  # a managed window
                self.step_apart()
        if name not in self.queues:
            raise Refuse("unknown_queue")
        return self.queues[name]

    def make(self, name: str, own: Mapping[str, object]) -> Queue:
        self.queues[name] = Queue(name, own, self.spec(name, own))
        self.fit_window(self.queues[name])
        return self.queues[name]

    def spec(self, name: str, own: Mapping[str, object]) -> QueueSpec:
        address, is_part, subscription = name.partition("::")
        declared = self.declared.get(name, {})
        if is_part:
            declared = self.subscriptions(address).get(subscription, {})
        try:
            return QueueSpec().with_fields({**self.settings.get(address, {}), **declared, **own})
        except BadSetting as error:
            raise Refuse("bad_command") from error

    def subscriptions(self, address: str) -> Declared:
        declared: Declared = self.declared_addresses.get(address, {}).get("subscriptions", {})
        return declared

    def address(self, name: str) -> Address | None:
        """The address, with all its declared queues; a new one gets what is kept (R71)."""
        if name not in self.declared_addresses:
            return None
        if name not in self.addresses:
            self.addresses[name] = Address(name, {}, self.address_spec(name, {}))
        a = self.addresses[name]
        for each in self.subscriptions(name):
            if f"{name}::{each}" not in a.members:
                self.join(a, self.make(f"{name}::{each}", {}))
                self.step_apart()
        return a

    def address_spec(self, name: str, own: Mapping[str, object]) -> AddressSpec:
        declared = {k: v for k, v in self.declared_addresses[name].items() if k != "subscriptions"}
        try:
            return AddressSpec().with_fields({**declared, **own})
        except BadSetting as error:
            raise Refuse("bad_command") from error

    def join(self, a: Address, q: Queue) -> None:
        raise NotImplementedError

    def fit_window(self, q: Queue) -> None:
        raise NotImplementedError

    def attached(self, queue: str, name: str) -> tuple[Queue, Consumer]:
        q = self.queue(queue)
        k = q.consumer(name)
        if k is None:
            raise Refuse("bad_command")
        return q, k

    def session(self, name: str) -> list[tuple[Queue, Consumer]]:
        """All consumers attached in a session, with their queues."""
        queues = [q for _, q in sorted(self.queues.items())]
        return [(q, k) for q in queues for k in q.consumers if name and k.session == name]

    def waiting(self, q: Queue, message: str, only_scheduled: bool = False) -> Message:
        """The ready or scheduled message of that id."""
        ready = [] if only_scheduled else q.in_delivery_order()
        for m in ready + [m for _, m in q.by_due_time()]:
            if m.id == message:
                return m
        raise Refuse("bad_command")

    # --- moving -----------------------------------------------------------------------------------

    def withdraw(self, q: Queue, m: Message) -> None:
        q.ready = [other for other in q.ready if other is not m]
        q.scheduled = [pair for pair in q.scheduled if pair[1] is not m]

    def dispatch(self, q: Queue) -> None:
        """The first message that some consumer can take, again until none can (R14)."""
        while "dispatch" not in q.paused:
            pairs = [(m, q.taker(m)) for m in q.in_delivery_order()]
            able = [(m, k) for m, k in pairs if k is not None]
            if not able:
                return
            self.hand_over(q, *able[0])

    def hand_over(self, q: Queue, m: Message, k: Consumer) -> None:
        assert not m.is_bodyless
        self.withdraw(q, m)
        m.attempts += 1
        m.handovers += 1
        m.holders.append(k.name)
        if m.group:
            q.owners[m.group] = k.name
        q.took(k)
        h = Held(k.name, m, handed_ms=self.now)
        q.held.append(h)
        self.given.append((q.name, h))
        self.say("dispatched", q, k.name, m.id, m.attempts, m.handovers)
        if k.mode is AckMode.NONE:
            self.end(q, h)
            self.accept(q, h)

    def expire(self, q: Queue) -> None:
        """What has outlived its time leaves before anything else happens (R50)."""
        for m in q.expired(self.now):
            self.leave_expired(q, m)

    def end(self, q: Queue, h: Held) -> None:
        q.held.remove(h)
        q.ended[h.consumer][h.message.id] = "stale_delivery"

    def left(self, q: Queue, m: Message) -> None:
        """It is gone. Of a group without a message the owner is remembered for a while (R116)."""
        if m.group not in q.owners or any(other.group == m.group for other in q.everything()):
            return
        q.idle_groups.append(m.group)
        for _ in range(2):
            if len(q.idle_groups) > q.spec.max_groups:
                q.owners.pop(q.idle_groups.pop(0), None)

    def accept(self, q: Queue, h: Held) -> None:
        self.left(q, h.message)
        q.counts["acked"] += 1
        self.say("acked", q, h.consumer, h.message.id)

    def die(self, q: Queue, h: Held, reason: str, text: str) -> None:
        self.left(q, h.message)
        q.counts["dead"] += 1
        self.say("dead", q, h.message.id, reason, h.consumer, text)

    def evict(self, q: Queue, m: Message, reason: str, cause: str) -> None:
        """It leaves by the ring (R6)."""
        self.withdraw(q, m)
        self.left(q, m)
        for name in m.holders:
            q.ended[name][m.id] = "evicted"
        q.counts["evicted"] += 1
        self.say("evicted", q, m.id, reason, cause, q.spec.ring_size, len(q.ready))

    def leave_expired(self, q: Queue, m: Message) -> None:
        self.withdraw(q, m)
        self.left(q, m)
        q.counts["expired"] += 1
        self.say("expired", q, m.id, m.holders[-1] if m.holders else "")

    def lose(self, q: Queue, m: Message) -> None:
        """A crash took its body (R82)."""
        self.withdraw(q, m)
        self.left(q, m)
        q.counts["lost"] += 1
        self.say("lost", q, m.id)

    def take_out(self, q: Queue, m: Message) -> None:
        self.withdraw(q, m)
        self.left(q, m)
        q.counts["removed"] += 1
        self.say("removed", q, m.id)
