"""Where Artemis puts what comes due or comes back (`compat: artemis`: C4, C5, C6).

Artemis numbers what is sent plainly and sorts by that number what comes back. What comes due goes
to the head instead, with the number it has: 0 if it was scheduled when sent. So a ring need not be
in order, and then it matters how a place is looked for.

Here, the number stands in the last bits of a position. The rest only says who is before whom.
"""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.model import PLAIN, Message, plain_position
from ringfaust.core.queue import Queue

_BITS = limits.SEQUENCE_BITS


def head_position(queue: Queue, message: Message) -> int:
    """Before all that are ready in its priority (C5)."""
    first = queue.lane_of(message).first_key()
    rest = (PLAIN if first is None else min(first, PLAIN)) >> _BITS
    return rest - 1 << _BITS | _number(message.position)


def sorted_position(queue: Queue, message: Message) -> int:
    """Among the ready of its priority, where Artemis finds a place for its number (C6)."""
    lane, number = queue.lane_of(message), _number(message.position)
    first = lane.first_key()
    if number and (first is None or first >= PLAIN):  # all are in order
        return plain_position(number)
    if first is None or number <= _number(first):
        return head_position(queue, message)
    places = [place for place, _ in lane]
    before: int = places[-1]
    if number < _number(before):
        after = next(i for i, place in enumerate(places) if number <= _number(place))
        before = places[after - 1]
    return before - _number(before) + number


def rank_position(turn: int, message: Message) -> int:
    """While it waits to be redelivered: its turn among those that came back with it."""
    return turn << _BITS | _number(message.position)


def _number(position: int) -> int:
    return position & (1 << _BITS) - 1
