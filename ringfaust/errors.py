"""The errors people meet. Each says what happened, with its data, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RingfaustError(Exception):
    """Root of all errors that ringfaust raises on purpose."""


_SHOWN_CHARS = 80
"""What an error shows of a name or value."""


class BadSetting(RingfaustError, ValueError):
    """A setting has a value that cannot be; nothing was changed.

    Attributes:
        field: the setting's name.
        value: what was given.
        advice: what would be right.
    """

    def __init__(self, field: str, value: object, advice: str) -> None:
        # Names and values come from outside, and are told in records of bounded size.
        super().__init__(f"{field[:_SHOWN_CHARS]} = {repr(value)[:_SHOWN_CHARS]}: {advice}")
        self.field = field
        self.value = value
        self.advice = advice


class BadSelector(RingfaustError, ValueError):
    """A message selector that cannot be understood (R15); nothing was changed.

    Attributes:
        text: the whole selector.
        position: the character, counted from 1, where it goes wrong; one after the last if it
            ends too early.
        advice: what would be right.
    """

    def __init__(self, text: str, position: int, advice: str) -> None:
        start = max(position - 1 - _EXCERPT_CHARS, 0)
        excerpt = text[start : position - 1 + _EXCERPT_CHARS]
        super().__init__(f"selector, character {position}, in {excerpt!r}: {advice}")
        self.text = text
        self.position = position
        self.advice = advice


_EXCERPT_CHARS = 40
"""What an error shows of a long text, to either side."""


class BrokenAccounts(RingfaustError):
    """A queue's counts do not add up (R100): a bug in ringfaust, never the user's fault.

    The worker stops before anything of that batch is committed. What to do: keep the data folder
    and the topics as they are and report the message; no message is lost, the log still has all.
    """

    def __init__(self, queue: str, promise: str, figures: str) -> None:
        super().__init__(f"queue {queue!r}: {promise} does not hold: {figures}")
        self.queue = queue


class ProtocolError(RingfaustError):
    """Bytes from outside that make no sense. The record goes to the dead topic with `reason`.

    Attributes:
        reason: one word for the dead record (`undecodable` or `too_large`).
    """

    def __init__(self, text: str, reason: str = "undecodable") -> None:
        super().__init__(text)
        self.reason = reason


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return half a sentence that names the known word most like this one, or all known words."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(words)
