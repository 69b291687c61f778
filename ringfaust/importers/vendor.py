"""Python's parser of regular expressions, which is private: it tells how long a search may take.

`tests/importers/test_vendor.py` pins `re._parser`: its kinds and their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import comb, inf
from re import _parser
from typing import Any, NamedTuple

_SPELLED_OUT = 8
"""A repetition up to this count is taken as so many copies."""
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_BEGINNINGS = ("AT_BEGINNING", "AT_BEGINNING_STRING")


def most_steps(pattern: re.Pattern[bytes], size: int) -> float:
    """The most ways in which a search tries to fit a pattern to a text of so many bytes.

    It is an upper bound, which may be too high by far: infinite for a repetition of anything that
    varies, such as (a+)+.
    """
    parsed = list(_parser.parse(pattern.pattern))
    choices = _choices(parsed)
    begins_anywhere = not (parsed and str(parsed[0][1]) in _BEGINNINGS)
    places = choices.places + begins_anywhere
    return choices.ways * comb(size + places, places)


class _Choices(NamedTuple):
    """What a search has to try."""

    places: int
    """How many ends in the text it chooses, in order."""
    ways: float
    """How many ways there are for each choice of these."""


def _choices(items: Iterable[Any]) -> _Choices:
    places, ways = 0, 1.0
    for kind, argument in items:
        found = _of_repeat(*argument) if str(kind) in _REPEATS else _of_parts(argument)
        places, ways = places + found.places, ways * found.ways
    return _Choices(places, ways)


def _of_repeat(least: int, most: int, items: Iterable[Any]) -> _Choices:
    places, ways = _choices(items)
    if most <= _SPELLED_OUT:
        return _Choices(places * most, ways**most * (most - least + 1))
    if places or ways > 1:
        return _Choices(0, inf)
    return _Choices(int(most > least), 1)


def _of_parts(argument: Any) -> _Choices:
    """Of whatever has parts, such as a group: one of them fits. Most kinds have none."""
    values = argument if isinstance(argument, tuple) else (argument,)
    lists = [each for value in values for each in (value if isinstance(value, list) else (value,))]
    parts = [_choices(each) for each in lists if isinstance(each, _parser.SubPattern)]
    if not parts:
        return _Choices(0, 1)
    return _Choices(max(each.places for each in parts), sum(each.ways for each in parts))
