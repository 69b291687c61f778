"""Changes addresses: their settings, their queues and the messages they retain (R70, R71)."""

from __future__ import annotations

from ringfaust.core.address import Address
from ringfaust.core.model import Message
from ringfaust.core.settings import AddressSpec


def configure(address: Address, settings: dict[str, object], spec: AddressSpec) -> None:
    """Apply new settings; retained messages beyond a lower count are dropped (R71, R90)."""
    address.settings = settings
    address.use_spec(spec)
    _drop(address, is_send=False)


def join(address: Address, queue: str) -> None:
    """Add a queue; it comes last."""
    address.members.append(queue)


def leave(address: Address, queue: str) -> None:
    """Remove a queue."""
    address.members.remove(queue)


def retain(address: Address, message: Message) -> None:
    """Retain a message that was sent, and drop the oldest beyond `retroactive_count` (R71, C11)."""
    address.has_ring, retains = address.policy.retains(
        address.has_ring, is_set=address.spec.retroactive_count > 0
    )
    if not retains:
        return
    key = address.policy.retained_key(message, address.after)
    address.retained.put_new(key, message._replace(due_ms=0))
    address.after += 1
    _drop(address, is_send=True)


def _drop(address: Address, *, is_send: bool) -> None:
    excess = address.after - address.first - address.spec.retroactive_count
    for _ in range(address.policy.retained_to_drop(excess, is_send=is_send)):
        address.retained.delete(address.retained.first_key())
        address.first += 1
