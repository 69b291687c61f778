"""The rules of Artemis (`compat: artemis`, C1-C12).

Artemis numbers the messages that are sent plainly, and sorts what returns by that number. A message
that comes due goes to the head instead and keeps the number it has: 0 if it was scheduled when it
was sent. A ring is therefore not always in order, and the way Artemis looks for a place matters.

Here, the number is in the last bits of a position. The other bits only say who is before whom.
"""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.model import PLAIN, Message, cost_bytes, plain_position, time_of
from ringfaust.core.policy.default import DefaultPolicy
from ringfaust.core.table import Ordered

_BITS = limits.SEQUENCE_BITS


class ArtemisPolicy(DefaultPolicy):
    """Decides as Artemis 2.44 was seen to decide."""

    expires_when_met = True
    tests_due_batch = True
    ends_set_first = True
    sorts_copies = True
    restarts_round_robin = True

    # --- sends and time --------------------------------------------------------------------------

    def due_ms(self, due_ms: int, now_ms: int) -> int:
        """A time in the past is a schedule as well (C7)."""
        return due_ms

    def has_expired(self, expires_at_ms: int, now_ms: int) -> bool:
        """No message leaves for its time alone (C1)."""
        return False

    def due_together(self, scheduled: Ordered, first: int) -> list[int]:
        """Keys of all with one due time. It reads their messages and keeps none (R121).

        Newest first, so that the latest survive; redelivered ones count as sent before (C4).
        """
        due: list[int] = []
        returned: list[tuple[int, int]] = []
        for key, message in scheduled.walk():
            if time_of(key) != time_of(first):
                break
            if message.position:
                returned.append((message.position, key))
            else:
                due.append(key)
        return [*due[::-1], *[key for _, key in sorted(returned, reverse=True)]]

    def due_position(self, message: Message, level: Ordered) -> int:
        """Before all that are ready in its priority (C5)."""
        return _head_position(message, level)

    # --- returning sets --------------------------------------------------------------------------

    def was_tried(self, clean: bool, delayed: bool, acked: bool) -> bool:
        """Apart from a timeout, only what was acked counts as an attempt (C9)."""
        return acked if delayed else not clean

    def waiting_position(self, message: Message, rank: int) -> int:
        """Its rank among those that returned with it (C2)."""
        return rank << _BITS | _number(message.position)

    def returned_position(self, message: Message, level: Ordered) -> tuple[int, int]:
        """Before the first with a higher number, but behind all if the last has a lower one (C6).

        Only those that were put at the head are looked at: behind them all are in order.
        """
        number = _number(message.position)
        first = level.first_key()
        if number and (first is None or first >= PLAIN):  # all are in order
            return plain_position(number), 0
        if first is None or number <= _number(first):
            return _head_position(message, level), 0
        plain = next(level.walk(PLAIN - 1), None)
        is_last = next(level.walk(plain_position(number)), None) is None
        if plain is not None and is_last:
            return plain_position(number), 0
        size_bytes, last, before = 0, first, None
        for place, other in level.walk():
            if place >= PLAIN:
                break
            size_bytes += limits.ROW_COST_BYTES + cost_bytes(other)
            if before is None and number <= _number(place):
                before = last
            last = place
        if plain is None and number >= _number(last):
            before = last
        elif before is None and plain is not None and _number(plain[0]) < number:
            return plain_position(number), size_bytes
        elif before is None:
            before = last
        return before - _number(before) + number, size_bytes

    # --- retroactive addresses -------------------------------------------------------------------

    def retains(self, has_ring: bool | None, *, is_set: bool) -> tuple[bool | None, bool]:
        """An address retains only if it did from its first send on (C11)."""
        has_ring = is_set if has_ring is None else has_ring
        return has_ring, has_ring

    def retained_key(self, message: Message, number: int) -> int:
        """Highest priority first: what a queue would deliver next is dropped first (C1, C11)."""
        return (limits.PRIORITIES - 1 - message.priority) << _BITS | number

    def retained_to_drop(self, excess: int, *, is_send: bool) -> int:
        """One in, at most one out; new settings drop nothing (C11)."""
        return min(max(excess, 0), 1) if is_send else 0


def _head_position(message: Message, level: Ordered) -> int:
    first = level.first_key()
    rest = (PLAIN if first is None else min(first, PLAIN)) >> _BITS
    return rest - 1 << _BITS | _number(message.position)


def _number(position: int) -> int:
    return position & (1 << _BITS) - 1
