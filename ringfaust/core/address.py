"""One address, decoded: which queues it feeds, and the messages it keeps. No policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ringfaust.core.model import AddressSpec, Message
from ringfaust.core.table import Book, Kind, Ordered

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


class Address:
    """See the head of this file."""

    def __init__(self, book: Book, name: str, spec: AddressSpec, row: AddressRow | None) -> None:
        """`row` None: the address is new."""
        self.name = name
        self.spec = spec
        row = row or AddressRow({}, (), 0, 0)
        self.settings = row.settings
        self.members = list(row.members)
        """Full names of its queues, in the order they joined."""
        self._first = row.first
        self._after = row.after
        self._kept = Ordered(book, Kind.RETAINED, name, fresh=row.first == row.after, weighs=True)

    def keep(self, message: Message) -> None:
        """Keep it, and no more than the last of `retroactive_count` (R71)."""
        self._kept.put_new(self._after, message)
        self._after += 1
        self.fit()

    def fit(self) -> None:
        """Drop the oldest kept, beyond what it may keep (R71)."""
        while self._after - self._first > self.spec.retroactive_count:
            self._kept.delete(self._first)
            self._first += 1

    def kept(self) -> Iterator[Message]:
        """What it keeps, oldest first."""
        for _, message in self._kept:
            yield message

    def row(self) -> AddressRow:
        """What is to be stored of it."""
        return AddressRow(self.settings, tuple(self.members), self._first, self._after)

    def forget(self) -> None:
        """Give the memory of its window back. Only when no change is pending."""
        self._kept.forget()
