"""The rules of the contract, where `compat: artemis` has others."""

from __future__ import annotations

from ringfaust.core.model import Message, due_position
from ringfaust.core.table import Ordered


class DefaultPolicy:
    """Decides what depends on `compat`. It has no state and changes nothing."""

    expires_when_met = False
    """Messages expire when dispatch meets them, not by time alone (C1)."""
    tests_due_batch = False
    """Messages with one due time are tested together, before any dispatch (C4)."""
    ends_set_first = False
    """All deliveries of a returning set end before the first is placed (C2)."""
    sorts_copies = False
    """What an address retains is copied by priority, then by age (C11)."""
    restarts_round_robin = False
    """Round robin starts again whenever a consumer joins or leaves (C12)."""

    # --- sends and time --------------------------------------------------------------------------

    def due_ms(self, due_ms: int, now_ms: int) -> int:
        """The due time of a send; 0 for a plain send, which one due by now is (R33)."""
        return due_ms if due_ms > now_ms else 0

    def has_expired(self, expires_at_ms: int, now_ms: int) -> bool:
        """Tell whether a message leaves for its time alone (R50)."""
        return 0 < expires_at_ms <= now_ms

    def due_together(self, scheduled: Ordered, first: int) -> list[int]:
        """Keys of what is tested against the ring before others are: the first alone (R32)."""
        return [first]

    def due_position(self, message: Message, level: Ordered) -> int:
        """Where a due message goes among the ready of its priority, `level` (§1, R31)."""
        return message.position or due_position(message.due_ms, message.sequence)

    # --- returning sets --------------------------------------------------------------------------

    def was_tried(self, clean: bool, delayed: bool, acked: bool) -> bool:
        """Tell whether a returning delivery counts as an attempt (R40).

        `clean`: its consumer detached. `delayed`: it comes from a release, recover or rollback.
        `acked`: it was acked in the transaction that is rolled back.
        """
        return not clean

    def waiting_position(self, message: Message, rank: int) -> int:
        """The position of a message that waits to be redelivered: its own (R32)."""
        return message.position

    def returned_position(self, message: Message, level: Ordered) -> tuple[int, int]:
        """Where a returned message goes among the ready of its priority: its own place (R20).

        Also what it counts to look at others for that, in bytes (R121).
        """
        return message.position, 0

    # --- retroactive addresses -------------------------------------------------------------------

    def retains(self, has_ring: bool | None, *, is_set: bool) -> tuple[bool | None, bool]:
        """At a send: whether the address has ever had a ring, and whether it retains (R71).

        `has_ring`: None before the first send. `is_set`: `retroactive_count` is above 0.
        """
        return has_ring or is_set, is_set

    def retained_key(self, message: Message, number: int) -> int:
        """The key of a retained message; the lowest is dropped first."""
        return number

    def retained_to_drop(self, excess: int, *, is_send: bool) -> int:
        """How many retained messages to drop, at a send or when the settings change."""
        return max(excess, 0)
