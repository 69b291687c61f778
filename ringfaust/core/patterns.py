"""Patterns of names: words separated by `.`, with `*` for one word and `#` for any number (R72)."""

from __future__ import annotations

from collections.abc import Iterable


def is_pattern(name: str) -> bool:
    """Whether a name has words that are wildcards."""
    return bool({"*", "#"} & set(name.split(".")))


class Pattern:
    """A pattern, matched in one step for each word of a name (R122).

    It follows all ways to match at once. Bit i of a state is set if the words so far match the part
    of the pattern before its word i. `#` does not count as a word.
    """

    def __init__(self, text: str) -> None:
        """Compile a pattern."""
        self.words = text.split(".")
        self._length = 0
        self._stays = 0
        """The places of `#`: a way that is there may take any word and stay."""
        self._any = 0
        """The places of `*`."""
        literals: dict[str, int] = {}
        for word in self.words:
            if word == "#":
                self._stays |= 1 << self._length
                continue
            if word == "*":
                self._any |= 1 << self._length
            else:
                literals[word] = literals.get(word, 0) | 1 << self._length
            self._length += 1
        self._accepts = {word: places | self._any for word, places in literals.items()}

    def matches(self, words: Iterable[str]) -> bool:
        """Whether it matches a name, which is split into words."""
        return bool(self._after(words) >> self._length & 1)

    def may_go_on(self, words: Iterable[str]) -> bool:
        """Whether it matches any name that has more words after these."""
        state = self._after(words)
        return bool(state & self._stays or state & (1 << self._length) - 1)

    def _after(self, words: Iterable[str]) -> int:
        state = 1
        for word in words:
            if not state:
                break
            moves = state & self._accepts.get(word, self._any)
            state = state & self._stays | moves << 1
        return state
