"""An address, decoded: the queues it feeds, and the messages it retains for later ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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


class AddressRow(NamedTuple):
    """What is stored of an address, apart from the messages it retains."""

    settings: dict[str, object]
    """Settings made at runtime; the others come from the configuration."""
    members: tuple[str, ...]
    first: int
    after: int
    has_ring: bool | None = None


class Address:
    """Reads of one address; `transitions.addresses` changes it."""

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
        self.retained = Ordered(
            write_set, Kind.RETAINED, name, fresh=row.first == row.after, weighs=True
        )

    def use_spec(self, spec: AddressSpec) -> None:
        """Use these settings."""
        self.spec = spec
        self.policy = POLICIES[spec.compat]

    def retained_after(self, key: int | None) -> Iterator[tuple[int, Message]]:
        """What it retains behind a key, oldest first; with Artemis by priority, then age."""
        if self.spec.retroactive_count:
            yield from self.retained.walk(key)

    def row(self) -> AddressRow:
        """The row to store."""
        return AddressRow(self.settings, tuple(self.members), self.first, self.after, self.has_ring)

    def forget(self) -> None:
        """Free the memory of the decoded messages. Only when no change is pending."""
        self.retained.forget()
