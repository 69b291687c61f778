"""Where a returned message goes with `compat: artemis`: the short way to it is right (C6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core import limits
from ringfaust.core.model import PLAIN
from ringfaust.core.policy.artemis import ArtemisPolicy
from tests.core.selecting import PLAIN as MESSAGE

BITS = limits.SEQUENCE_BITS
NUMBERS = st.lists(st.integers(1, 30), unique=True, min_size=1, max_size=12)


class Level:
    """A table of ready messages that counts how many are looked at."""

    def __init__(self, places: list[int]) -> None:
        self.places = places
        self.looked = 0

    def first_key(self) -> int | None:
        return self.places[0] if self.places else None

    def walk(self, after: int | None = None) -> Iterator[tuple[int, Any]]:
        for place in self.places:
            if after is None or place > after:
                self.looked += 1
                yield place, MESSAGE


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
    level = Level(places)
    place, size_bytes = ArtemisPolicy().returned_position(
        MESSAGE._replace(position=PLAIN | own), level
    )  # type: ignore[arg-type]
    if places and places[0] < PLAIN and own > number_of(places[0]):
        assert place == by_the_rule(own, places)
    assert level.looked <= len(at_head) + 4
    assert size_bytes >= 0


def test_what_it_looks_at_counts() -> None:
    places = [(PLAIN >> BITS) - 9 << BITS | n for n in range(1, 8)] + [PLAIN | 90]
    level: Any = Level(places)
    _, size_bytes = ArtemisPolicy().returned_position(MESSAGE._replace(position=PLAIN | 50), level)
    assert size_bytes >= 7 * limits.ROW_COST_BYTES
