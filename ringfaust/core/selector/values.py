"""How a selector treats values: numbers, text, truth values and unknown (R15).

`None` is SQL null and, as a truth value, unknown. Nothing here raises, whatever the values are: a
result that cannot be calculated is unknown, and a comparison of different types is false (JMS 2.0,
3.8.1.1).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
"""Range of an exact number, as in JMS (a Java long)."""

_NUMBER = re.compile(r"[+-]?(?:(\d+)|(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?)", re.ASCII)
_NUMBER_CHARS = 64
"""Longer text is not read as a number: parsing it is expensive, and no number needs it."""
_TRUTHS = {"true": True, "false": False}
_TRUTH_CHARS = 5


class Untyped(str):
    """Text without a type: the value of a plain Kafka header (R15).

    Next to text it is text. Next to a number it is a number if it reads as one (`7`, `-0.5`,
    `7E3`). Next to a truth value it is one if it is `true` or `false`, in upper or lower case. Two
    untyped values are compared for equality as text and ordered as numbers.
    """

    __slots__ = ()


_TEXTS = frozenset({str, Untyped})
_SAME = frozenset({int, bool, str, Untyped})


def number(value: Any) -> int | float | None:
    """Return the value as a number, or null."""
    kind = type(value)
    if kind is int:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return None if math.isnan(value) else value
    return _read_number(value) if kind is Untyped else None


def _read_number(text: str) -> int | float | None:
    found = _NUMBER.fullmatch(text) if len(text) <= _NUMBER_CHARS else None
    if found is None:
        return None
    if found[1]:
        return int(text)
    read = float(text)
    return read if math.isfinite(read) else None


def truth(value: Any) -> bool | None:
    """Return the value as a truth value, or unknown."""
    kind = type(value)
    if kind is bool:
        return value  # type: ignore[no-any-return]
    if kind is not Untyped or len(value) > _TRUTH_CHARS:
        return None
    return _TRUTHS.get(value.lower())


def is_text(value: Any) -> bool:
    """Return whether the value is text, typed or untyped."""
    return type(value) in _TEXTS


def _same(left: Any, right: Any) -> bool | None:
    """Return whether the two are the same; unknown if their types differ."""
    one, other = type(left), type(right)
    if one is other and one in _SAME:
        return bool(left == right)
    if one in _TEXTS and other in _TEXTS:
        return bool(left == right)
    as_like = truth if one is bool or other is bool else number
    first, second = as_like(left), as_like(right)
    return None if first is None or second is None else first == second


def equal(left: Any, right: Any) -> bool | None:
    """Return whether the two are equal: unknown if one is null, false if their types differ."""
    if left is None or right is None:
        return None
    return _same(left, right) is True


def unequal(left: Any, right: Any) -> bool | None:
    """Return whether the two differ: unknown if one is null, false if their types differ."""
    if left is None or right is None:
        return None
    return _same(left, right) is False


def _in_order(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    """Compare numbers, as in JMS; other types give false, null gives unknown."""

    def compare(left: Any, right: Any) -> bool | None:
        if left is None or right is None:
            return None
        first, second = number(left), number(right)
        return first is not None and second is not None and holds(first, second)

    return compare


COMPARISONS: dict[str, Callable[[Any, Any], bool | None]] = {
    "=": equal,
    "<>": unequal,
    "<": _in_order(operator.lt),
    "<=": _in_order(operator.le),
    ">": _in_order(operator.gt),
    ">=": _in_order(operator.ge),
}


def _calculation(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], int | float | None]:
    """Calculate; unknown if neither a long nor a double holds the result, or on division by 0."""

    def calculate(left: Any, right: Any) -> int | float | None:
        first, second = number(left), number(right)
        if first is None or second is None:
            return None
        try:
            result = apply(first, second)
        except (OverflowError, ZeroDivisionError):
            return None
        if type(result) is int:
            return result if LEAST <= result <= GREATEST else None
        return result if math.isfinite(result) else None

    return calculate


CALCULATIONS: dict[str, Callable[[Any, Any], int | float | None]] = {
    "+": _calculation(operator.add),
    "-": _calculation(operator.sub),
    "*": _calculation(operator.mul),
    # 7 / 2 is 3.5, not 3: JMS leaves this open, and Artemis divides doubles.
    "/": _calculation(operator.truediv),
}
