"""LIKE patterns, matched in linear time (R15, R116).

A pattern is cut at each `%` into pieces of a fixed length. The first piece must be at the start of
the text and the last one at its end. Each piece between them is taken at its first occurrence
behind the one before: because pieces have a fixed length, a later occurrence never does better, so
nothing is tried twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

_ANY = None
"""Stands for `_` in a piece: any one character."""
_SEARCHED_BY_REGEX = 32
"""A piece with `_` of up to so many characters is searched with a regular expression, which is fast
but compares up to the whole piece at each character of the text."""


class _Piece(NamedTuple):
    """What stands between two `%` of a pattern."""

    length: int
    holds: Callable[[str, int], bool]
    """Whether the piece matches the text at an index."""
    find: Callable[[str, int], int]
    """Index of the first match at or after an index, or -1."""


def like(pattern: str, escape: str = "") -> Callable[[str], bool]:
    """Return a test of text against a LIKE pattern: `_` is any character, `%` any number of them.

    Args:
        pattern: matches the whole text; line ends are ordinary characters.
        escape: a character that makes the next one literal, or empty.

    Raises:
        ValueError: the pattern ends with the escape character.
    """
    first, *rest = [_piece(chars) for chars in _cut(pattern, escape)]
    if not rest:
        return lambda text: len(text) == first.length and first.holds(text, 0)
    *middle, last = rest
    middle = [piece for piece in middle if piece.length]

    def matches(text: str) -> bool:
        at, end = first.length, len(text) - last.length
        if at > end or not first.holds(text, 0) or not last.holds(text, end):
            return False
        for piece in middle:
            found = piece.find(text, at)
            at = found + piece.length
            if found < 0 or at > end:
                return False
        return True

    return matches


def like_cost(pattern: str, escape: str) -> int:
    """What a test of text against a pattern counts for each 16 characters of it, in bytes (R121).

    As measured, where 16 MiB of messages take a second.
    """
    middle = _cut(pattern, escape)[1:-1]
    return 1 + sum([_cost(chars) for chars in middle if _ANY in chars])


def _cost(chars: Sequence[str | None]) -> int:
    length = len(chars)
    return 1 + length // 5 if length <= _SEARCHED_BY_REGEX else 34 + length // 60


def _cut(pattern: str, escape: str) -> list[list[str | None]]:
    """The characters of each piece."""
    pieces: list[list[str | None]] = [[]]
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            escaped = next(chars, "")
            if not escaped:
                raise ValueError
            pieces[-1].append(escaped)
        elif char == "%":
            pieces.append([])
        else:
            pieces[-1].append(_ANY if char == "_" else char)
    return pieces


def _piece(chars: Sequence[str | None]) -> _Piece:
    if _ANY not in chars:
        literal = "".join(char for char in chars if char is not None)
        return _Piece(
            len(literal),
            lambda text, at: text.startswith(literal, at),
            lambda text, start: text.find(literal, start),
        )
    body = "".join("." if char is None else re.escape(char) for char in chars)
    regex = re.compile(body, re.DOTALL)
    find = _first_match(regex) if len(chars) <= _SEARCHED_BY_REGEX else _shift_and(chars)
    return _Piece(len(chars), lambda text, at: regex.match(text, at) is not None, find)


def _first_match(regex: re.Pattern[str]) -> Callable[[str, int], int]:
    def find(text: str, start: int) -> int:
        found = regex.search(text, start)
        return found.start() if found else -1

    return find


def _shift_and(chars: Sequence[str | None]) -> Callable[[str, int], int]:
    """Search with one bit for each character of the piece (the Shift-And algorithm).

    Bit i of `state` tells whether the last i + 1 characters match the first i + 1 of the piece. All
    bits move on with each character of the text, so each is looked at once.
    """
    length = len(chars)
    anything = sum(1 << i for i, char in enumerate(chars) if char is _ANY)
    accepted: dict[str, int] = {}
    for i, char in enumerate(chars):
        if char is not None:
            accepted[char] = accepted.get(char, anything) | 1 << i
    last = 1 << length - 1

    def find(text: str, start: int) -> int:
        state = 0
        for index in range(start, len(text)):
            state = (state << 1 | 1) & accepted.get(text[index], anything)
            if state & last:
                return index - length + 1
        return -1

    return find
