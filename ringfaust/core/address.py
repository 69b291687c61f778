"""An address, decoded: the queues it feeds, and the messages it retains for later ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ringfaust.core import limits
from ringfaust.core.commands import Subscribe
from ringfaust.core.model import Message
from ringfaust.core.policy import POLICIES
from ringfaust.core.settings import AddressSpec
from ringfaust.core.table import Kind, Ordered, WriteSet

SEPARATOR = "::"
"""Separates an address from one of its queues, in the queue's name."""


def queue_name(address: str, name: str) -> str:
    """The full name of a queue of an address."""
    return f"{address}{SEPARATOR}{name}"


def address_of(queue: str) -> str:
    """The address in a queue's name; empty if there is none."""
    address, separator, _ = queue.partition(SEPARATOR)
    return address if separator else ""


def row_bytes(name: str) -> int:
    """How much a name counts in a row of many (R120)."""
    return len(name.encode("ascii", "backslashreplace"))


def beyond_room(queues: Collection[str]) -> str:
    """What an address takes at most, if that is less than these queues; else empty (R120)."""
    if len(queues) > limits.SUBSCRIPTIONS:
        return f"{limits.SUBSCRIPTIONS:,} queues"
    if sum(map(row_bytes, queues)) > limits.SUBSCRIPTIONS_BYTES:
        return f"{limits.SUBSCRIPTIONS_BYTES:,} bytes of their names"
    return ""


def subscription_queue(subscribe: Subscribe) -> str:
    """The queue of a subscription (R70)."""
    name = subscribe.consumer
    if subscribe.subscription:
        name = ".".join(filter(None, (subscribe.client, subscribe.subscription)))
    return queue_name(subscribe.address, name)


class AddressRow(NamedTuple):
    """What is stored of an address, apart from the messages it retains."""

    settings: dict[str, object]
    """Settings made at runtime; the others come from the configuration."""
    members: tuple[str, ...]
    first: int
    after: int
    has_ring: bool | None = None


class Address:
    """A decoded address. Its methods change it and decide nothing about its queues."""

    def __init__(
        self, write_set: WriteSet, name: str, spec: AddressSpec, row: AddressRow | None
    ) -> None:
        """`row` None: the address is new."""
        self.name = name
        self.use_spec(spec)
        row = row or AddressRow({}, (), 0, 0)
        self.settings = row.settings
        self.members = list(row.members)
        """Full names of its queues, in the order they joined."""
        self.has_ring = row.has_ring
        """Whether it has retained messages since its first send; None before that."""
        self.first = row.first
        """How many it has dropped: by default also the key of the oldest retained."""
        self.after = row.after
        """How many it has ever retained."""
        self.completed: object = None
        """The catalog whose declared queues were compared with its queues."""
        self.overfull = ""
        """Why it cannot have all of these, as text; empty: it has them (R120)."""
        self.retained = Ordered(
            write_set, Kind.RETAINED, name, fresh=row.first == row.after, weighs=True
        )

    def use_spec(self, spec: AddressSpec) -> None:
        """Use these settings. See `first_beyond` for what they demand."""
        self.spec = spec
        self.policy = POLICIES[spec.compat]

    def first_beyond(self) -> Message | None:
        """The first retained message that is beyond the count of the settings, or None (R71)."""
        excess = self.after - self.first - self.spec.retroactive_count
        if not self.policy.retained_to_drop(excess, is_send=False):
            return None
        row = self.retained.first()
        return None if row is None else row[1]

    def drop_first(self) -> None:
        """Drop the first of what it retains."""
        self.retained.delete(self.retained.first_key())
        self.first += 1

    def join(self, queue: str) -> None:
        """Add a queue; it comes last.

        Up to 0.2.0, a queue that was deleted while its address was not declared stayed in it.
        """
        if queue not in self.members:
            self.members.append(queue)

    def leave(self, queue: str) -> None:
        """Remove a queue."""
        self.members.remove(queue)
        self.completed = None

    def retain(self, message: Message) -> None:
        """Retain a message that was sent, and drop the oldest beyond the count (R71, C11)."""
        self.has_ring, retains = self.policy.retains(
            self.has_ring, is_set=self.spec.retroactive_count > 0
        )
        if not retains:
            return
        key = self.policy.retained_key(message, self.after)
        self.retained.put_new(key, message._replace(due_ms=0))
        self.after += 1
        excess = self.after - self.first - self.spec.retroactive_count
        for _ in range(self.policy.retained_to_drop(excess, is_send=True)):
            self.drop_first()

    def row(self) -> AddressRow:
        """The row to store."""
        return AddressRow(self.settings, tuple(self.members), self.first, self.after, self.has_ring)

    def forget(self) -> None:
        """Free the memory of the decoded messages. Only when no change is pending."""
        self.retained.forget()
