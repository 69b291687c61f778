"""Where a returned message goes with `compat: artemis`: the short way to it is right (C6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core import limits
from ringfaust.core.model import PLAIN, cost_bytes
from ringfaust.core.policy.artemis import ArtemisPolicy
from ringfaust.core.table import Kind, Ordered, WriteSet
from tests.core.selecting import PLAIN as MESSAGE
from tests.model.harness import DictStore

BITS = limits.SEQUENCE_BITS
NUMBERS = st.lists(st.integers(1, 30), unique=True, min_size=1, max_size=12)


def level_of(places: list[int]) -> Ordered:
    """A table with ready messages there."""
    table = Ordered(WriteSet(DictStore()), Kind.RING, "q", fresh=True, weighs=True)
    for place in sorted(places):
        table.put(place, MESSAGE)
    return table


def number_of(place: int) -> int:
    return place & (1 << BITS) - 1


def by_the_rule(number: int, places: list[int]) -> int:
    """Before the first with a higher number, but behind all if the last has a lower one."""
    before = places[-1]
    if number < number_of(before):
        after = next(i for i, place in enumerate(places) if number <= number_of(place))
        before = places[after - 1]
    return before - number_of(before) + number


@given(NUMBERS, st.integers(0, 12), st.data())
def test_the_place_is_that_of_the_rule(numbers: list[int], heads: int, data: st.DataObject) -> None:
    own, *others = numbers
    at_head, plain = others[:heads], sorted(others[heads:])
    groups = sorted(data.draw(st.integers(-9, -1)) for _ in at_head)
    places = sorted(
        (PLAIN >> BITS) + rest << BITS | n for rest, n in zip(groups, at_head, strict=True)
    )
    places += [PLAIN | n for n in plain]
    place, size_bytes = ArtemisPolicy().returned_position(
        MESSAGE._replace(position=PLAIN | own), level_of(places)
    )
    if places and places[0] < PLAIN and own > number_of(places[0]):
        assert place == by_the_rule(own, places)
    assert 0 <= size_bytes <= len(at_head) * (limits.ROW_COST_BYTES + cost_bytes(MESSAGE))


def test_what_it_looks_at_counts() -> None:
    places = [(PLAIN >> BITS) - 9 << BITS | n for n in range(1, 8)] + [PLAIN | 90]
    returned = MESSAGE._replace(position=PLAIN | 50)
    _, size_bytes = ArtemisPolicy().returned_position(returned, level_of(places))
    assert size_bytes >= 7 * limits.ROW_COST_BYTES
