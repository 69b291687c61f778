"""One address, decoded: which queues it feeds, and the messages it keeps. No policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ringfaust.core import limits
from ringfaust.core.model import Message
from ringfaust.core.settings import AddressSpec
from ringfaust.core.table import Kind, Ordered, WriteSet

SEPARATOR = "::"
"""Between an address and one of its queues, in the queue's name."""


def queue_name(address: str, name: str) -> str:
    """The full name of an address' queue."""
    return f"{address}{SEPARATOR}{name}"


def address_of(queue: str) -> str:
    """The address that a queue's name names; empty: none."""
    address, separator, _ = queue.partition(SEPARATOR)
    return address if separator else ""


class AddressRow(NamedTuple):
    """What is stored of an address beside what it keeps."""

    settings: dict[str, object]
    """Set while running; the rest comes from the configuration."""
    members: tuple[str, ...]
    first: int
    after: int
    has_ring: bool | None = None


class Address:
    """See the head of this file."""

    def __init__(
        self, write_set: WriteSet, name: str, spec: AddressSpec, row: AddressRow | None
    ) -> None:
        """`row` None: the address is new."""
        self.name = name
        self.spec = spec
        row = row or AddressRow({}, (), 0, 0)
        self.settings = row.settings
        self.members = list(row.members)
        """Full names of its queues, in the order they joined."""
        self.has_ring = row.has_ring
        """Did it keep messages at its first send, or since? None: nothing was sent to it yet."""
        self._first = row.first
        """How many it has dropped, and the key of the oldest kept but for `compat: artemis`."""
        self._after = row.after
        self._kept = Ordered(
            write_set, Kind.RETAINED, name, fresh=row.first == row.after, weighs=True
        )

    @property
    def as_artemis(self) -> bool:
        """Does it keep messages in the way of Artemis (C11)?"""
        return self.spec.compat == "artemis"

    def keep(self, message: Message) -> None:
        """Keep it, and no more than the last of `retroactive_count` (R71)."""
        if self.as_artemis:
            self._rotate(message)
            return
        self._kept.put_new(self._after, message)
        self._after += 1
        self.fit()

    def _rotate(self, message: Message) -> None:
        """C11: one in, at most one out: that which a queue would deliver next (C1)."""
        lane = limits.PRIORITIES - 1 - message.priority
        self._kept.put_new(lane << limits.SEQUENCE_BITS | self._after, message)
        self._after += 1
        if self._after - self._first > self.spec.retroactive_count:
            self._drop()

    def _drop(self) -> None:
        self._kept.delete(self._kept.first_key())
        self._first += 1

    def fit(self) -> None:
        """Drop the oldest kept, beyond what it may keep (R71)."""
        while self._after - self._first > self.spec.retroactive_count and not self.as_artemis:
            self._drop()

    def keeps(self) -> bool:
        """At a send: does it keep messages? With Artemis only if it did from the first (C11)."""
        count_is_set = self.spec.retroactive_count > 0
        if not self.as_artemis:
            self.has_ring = self.has_ring or count_is_set
            return count_is_set
        if self.has_ring is None:
            self.has_ring = count_is_set
        return self.has_ring

    def kept(self) -> Iterator[Message]:
        """What it keeps for new queues, oldest first; with Artemis by priority, then age (C11)."""
        if self.spec.retroactive_count:
            for _, message in self._kept:
                yield message

    def row(self) -> AddressRow:
        """What is to be stored of it."""
        return AddressRow(
            self.settings, tuple(self.members), self._first, self._after, self.has_ring
        )

    def forget(self) -> None:
        """Give the memory of its window back. Only when no change is pending."""
        self._kept.forget()
