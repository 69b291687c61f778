"""What a selector does with values: numbers, text, truth, and what is unknown (R15).

`None` is SQL's null and, as a truth value, unknown. Nothing here raises, whatever the values are:
what cannot be calculated is unknown; a comparison of unlike types is false (JMS 2.0, 3.8.1.1).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
"""Range of an exact number, as in JMS (Java's long)."""

_NUMBER = re.compile(r"[+-]?(?:(\d+)|(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?)", re.ASCII)
_NUMBER_CHARS = 64
"""Longer text is not read as a number: it costs, and no number needs it."""
_TRUTHS = {"true": True, "false": False}


class Untyped(str):
    """Text that came without a type: the value of a plain Kafka header (R15).

    It is compared with text as text, with a number as a number if it reads as one (`7`, `-0.5`,
    `7E3`), with a truth value as one if it is `true` or `false` in any case. Two of them are equal
    as text, and have an order as numbers.
    """

    __slots__ = ()


_TEXTS = frozenset({str, Untyped})
_SAME = frozenset({int, bool, str, Untyped})


def number(value: Any) -> int | float | None:
    """The value as a number, or null."""
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
    """The value as a truth value, or unknown."""
    kind = type(value)
    if kind is bool:
        return value  # type: ignore[no-any-return]
    return _TRUTHS.get(value.lower()) if kind is Untyped else None


def is_text(value: Any) -> bool:
    """Is it text, with a type or without?"""
    return type(value) in _TEXTS


def _same(left: Any, right: Any) -> bool | None:
    """Are the two the same? Unknown if they are of unlike types."""
    one, other = type(left), type(right)
    if one is other and one in _SAME:
        return bool(left == right)
    if one in _TEXTS and other in _TEXTS:
        return bool(left == right)
    as_like = truth if one is bool or other is bool else number
    first, second = as_like(left), as_like(right)
    return None if first is None or second is None else first == second


def equal(left: Any, right: Any) -> bool | None:
    """Are the two the same? Unknown if one is null, false if they are of unlike types."""
    if left is None or right is None:
        return None
    return _same(left, right) is True


def unequal(left: Any, right: Any) -> bool | None:
    """Do the two differ? Unknown if one is null, false too if they are of unlike types."""
    if left is None or right is None:
        return None
    return _same(left, right) is False


def _in_order(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    """Only numbers have an order, as in JMS; for others it is false, for null unknown."""

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
    """What neither a long nor a double can hold is unknown; so is what is divided by 0."""

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
    # 7 / 2 is 3.5 and not 3: JMS leaves it open, and Artemis divides as doubles.
    "/": _calculation(operator.truediv),
}


def like(pattern: str, escape: str = "") -> Callable[[str], bool]:
    """A test for text against a pattern of LIKE: `_` any character, `%` any number of them.

    Args:
        pattern: matched from end to end; line ends are characters like others.
        escape: one character that takes the meaning from the next one, or empty.

    Raises:
        ValueError: the pattern ends with the escape character.
    """
    pieces = [""]
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            escaped = next(chars, "")
            if not escaped:
                raise ValueError
            pieces[-1] += re.escape(escaped)
        elif char == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if char == "_" else re.escape(char)
    first, *middle, last = pieces if len(pieces) > 1 else [*pieces, ""]
    # Each piece is taken where it is first found and never looked for again (?>): that is enough
    # as all have fixed lengths, and keeps the time in proportion to pattern and text.
    body = first + "".join(f"(?>.*?{piece})" for piece in middle if piece)
    if len(pieces) > 1:
        body += ".*" + last
    matches = re.compile(body, re.DOTALL).fullmatch
    return lambda value: matches(value) is not None
