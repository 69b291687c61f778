"""Which values a part of a selector may have, as far as its text says: what is never true (R15).

Each part has a `Possible`, made from those of its own parts, so a selector takes linear time. What
is possible here may be impossible in truth, never the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ringfaust.core.selector import values

Interval = tuple[float, float]
"""The least and the greatest number."""
_NUMBERS: Interval = (-math.inf, math.inf)
_TRUTHS = frozenset((True, False))
_NO_TRUTH: frozenset[bool] = frozenset()


class Possible(NamedTuple):
    """The values that a part may have, by type."""

    numbers: Interval | None = None
    """None: it is no number."""
    texts: frozenset[str] | None = frozenset()
    """None: any text."""
    truths: frozenset[bool] = _NO_TRUTH
    may_be_null: bool = False
    """Null, which as a truth value is unknown."""

    def __str__(self) -> str:
        if self.texts:
            return " or ".join("'" + text.replace("'", "''") + "'" for text in sorted(self.texts))
        if len(self.truths) == 1:
            return str(*self.truths).upper()
        if self.numbers is None:
            return "text" if self.texts is None else "a condition"
        low, high = self.numbers
        if low == high:
            return str(low)
        least = f" from {low}" if low > -math.inf else ""
        return f"a number{least}" + (f" to {high}" if high < math.inf else "")


ANY = Possible(_NUMBERS, None, _TRUTHS, may_be_null=True)
"""A property, whose type the message decides."""
ANY_TEXT = Possible(texts=None)
ANY_NUMBER = Possible(_NUMBERS)
ANY_TRUTH = Possible(truths=_TRUTHS)


def constant(value: object) -> Possible:
    """Of a literal."""
    if isinstance(value, bool):
        return Possible(truths=frozenset((value,)))
    if isinstance(value, str):
        return Possible(texts=frozenset((value,)))
    assert isinstance(value, int | float)
    return Possible((value, value))


def condition(part: Possible) -> Possible:
    """Of a part that must be true, false or unknown; another type is unknown."""
    is_other = part.numbers is not None or part.texts != frozenset()
    return Possible(truths=part.truths, may_be_null=part.may_be_null or is_other)


def negated(part: Possible) -> Possible:
    """Of NOT."""
    return part._replace(truths=frozenset(not truth for truth in part.truths))


def all_of(parts: Iterable[Possible]) -> Possible:
    """Of AND."""
    return negated(any_of(map(negated, parts)))


def any_of(parts: Iterable[Possible]) -> Possible:
    """Of OR."""
    each = [*parts]
    truths = {True for part in each if True in part.truths}
    truths |= {False} if all(False in part.truths for part in each) else set()
    return Possible(truths=frozenset(truths), may_be_null=any(part.may_be_null for part in each))


def compared(left: Possible, sign: str, right: Possible) -> Possible:
    """Of a comparison."""
    truths = _equal(left, right) if sign in ("=", "<>") else _ordered(left, sign, right)
    found = Possible(truths=truths, may_be_null=left.may_be_null or right.may_be_null)
    return _unequal(left, right, found) if sign == "<>" else found


def between(part: Possible, low: Possible, high: Possible) -> Possible:
    """Of BETWEEN."""
    found = all_of([compared(part, ">=", low), compared(part, "<=", high)])
    if may_be_in_order(low, high):
        return found
    return found._replace(truths=found.truths - {True})


def may_be_in_order(low: Possible, high: Possible) -> bool:
    """Whether a number may be between these two."""
    return True in compared(low, "<=", high).truths


def tested(part: Possible, holds: Callable[[str], bool]) -> Possible:
    """Of LIKE or IN: what is no text is not in it."""
    truths = _TRUTHS if part.texts is None else frozenset(map(holds, part.texts))
    if part.numbers is not None or part.truths:
        truths |= {False}
    return Possible(truths=truths, may_be_null=part.may_be_null)


def is_null(part: Possible) -> Possible:
    """Of IS NULL."""
    return ANY_TRUTH if part.may_be_null else Possible(truths=frozenset((False,)))


def calculated(first: Possible, signs: Sequence[str], rest: Sequence[Possible]) -> Possible:
    """Of a sum or a product."""
    total = first
    for sign, part in zip(signs, rest, strict=True):
        total = _calculated(total, sign, part)
    return total


def _calculated(left: Possible, sign: str, right: Possible) -> Possible:
    if left.numbers is None or right.numbers is None:
        return Possible(may_be_null=True)
    may_be_null = any(
        part.may_be_null or part.texts != frozenset() or part.truths for part in (left, right)
    )
    ends = [
        values.CALCULATIONS[sign](one, other) for one in left.numbers for other in right.numbers
    ]
    if ends[0] is None and _is_single(left) and _is_single(right):
        return Possible(may_be_null=True)
    if None in ends or (sign == "/" and right.numbers[0] <= 0 <= right.numbers[1]):
        return Possible(_NUMBERS, may_be_null=True)
    numbers: list[Any] = ends
    return Possible((min(numbers), max(numbers)), may_be_null=may_be_null)


def _equal(left: Possible, right: Possible) -> frozenset[bool]:
    truths = set()
    if _may_overlap(left, right):
        truths.add(True)
    if not (_is_single(left) and _is_single(right) and truths):
        truths.add(False)
    return frozenset(truths)


def _unequal(left: Possible, right: Possible, equal: Possible) -> Possible:
    """Of `<>`, which is false of different types, as `=` is."""
    same_type = (
        (left.numbers is not None and right.numbers is not None)
        or (left.texts != frozenset() and right.texts != frozenset())
        or bool(left.truths and right.truths)
    )
    truths = negated(equal).truths if same_type else frozenset((False,))
    is_mixed = not (_is_single(left) and _is_single(right))
    return equal._replace(truths=truths | {False} if is_mixed else truths)


def _may_overlap(left: Possible, right: Possible) -> bool:
    if left.truths & right.truths:
        return True
    if left.numbers and right.numbers:
        low, high = max(left.numbers[0], right.numbers[0]), min(left.numbers[1], right.numbers[1])
        if low <= high:
            return True
    if left.texts is None or right.texts is None:
        return left.texts != frozenset() and right.texts != frozenset()
    return bool(left.texts & right.texts)


def _is_single(part: Possible) -> bool:
    """Whether it has one value."""
    is_number = part.numbers is not None
    if part.texts is None or (part.numbers and part.numbers[0] != part.numbers[1]):
        return False
    return is_number + len(part.texts) + len(part.truths) == 1 and not part.may_be_null


def _ordered(left: Possible, sign: str, right: Possible) -> frozenset[bool]:
    """Of numbers; what is none is not in order."""
    if sign in (">", ">="):
        return _ordered(right, sign.replace(">", "<"), left)
    if left.numbers is None or right.numbers is None:
        return frozenset((False,))
    (least, most), (low, high) = left.numbers, right.numbers
    is_strict = sign == "<"
    may_hold = least < high if is_strict else least <= high
    always = most < low if is_strict else most <= low
    is_only_number = all(part.texts == frozenset() and not part.truths for part in (left, right))
    truths = {True} if may_hold else set()
    return frozenset(truths if always and is_only_number else {*truths, False})
