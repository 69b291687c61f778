"""Errors that users see. Each says what happened, with its data, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RingfaustError(Exception):
    """Base of all errors that ringfaust raises on purpose."""


_SHOWN_CHARS = 80
"""How much of a name or value an error text shows."""


class BadSetting(RingfaustError, ValueError):
    """A setting has a value that is not allowed; nothing was changed.

    Attributes:
        field: the setting's name.
        value: the value that was given.
        advice: which values are allowed.
    """

    def __init__(self, field: str, value: object, advice: str) -> None:
        # Names and values come from outside, and the text goes into records of limited size.
        super().__init__(f"{field[:_SHOWN_CHARS]} = {repr(value)[:_SHOWN_CHARS]}: {advice}")
        self.field = field
        self.value = value
        self.advice = advice


class BadSelector(RingfaustError, ValueError):
    """A message selector is not valid (R15); nothing was changed.

    Attributes:
        text: the whole selector.
        position: the character, counted from 1, where the error is; one past the last character if
            the selector ends too early.
        advice: how to correct it.
    """

    def __init__(self, text: str, position: int, advice: str) -> None:
        start = max(position - 1 - _EXCERPT_CHARS, 0)
        excerpt = text[start : position - 1 + _EXCERPT_CHARS]
        super().__init__(f"selector, character {position}, in {excerpt!r}: {advice}")
        self.text = text
        self.position = position
        self.advice = advice


_EXCERPT_CHARS = 40
"""How much of a long text an error shows on either side of the position."""


class BrokenAccounts(RingfaustError):
    """A queue's counts do not add up (R100): a bug in ringfaust, never a user's mistake.

    The partition stops before it commits any of the batch, so no message is lost (R123). Keep the
    data folder and the topics as they are, and report the error.
    """

    def __init__(self, queue: str, promise: str, figures: str) -> None:
        super().__init__(f"queue {queue!r}: {promise} does not hold: {figures}")
        self.queue = queue


class UnknownRowVersion(RingfaustError):
    """A newer ringfaust wrote a stored row; nothing was changed.

    Attributes:
        row: the kind of row.
        version: the version found.
        known: the newest version that this ringfaust reads.
        advice: what to do.
    """

    def __init__(self, row: str, version: int, known: int) -> None:
        self.row = row
        self.version = version
        self.known = known
        self.advice = (
            "run the newer ringfaust, or rebuild the state with this one from a changelog that "
            "it wrote itself"
        )
        super().__init__(
            f"a stored {row} row has version {version}, but this ringfaust reads versions up to "
            f"{known}: {self.advice}"
        )


class UnsupportedLevel(RingfaustError):
    """This version does not support the feature level in use (R129). Nothing was changed.

    What to do: run the version of the other workers, which `ringfaust upgrade status` names.
    """

    def __init__(self, name: str, what: str, level: int, oldest: int, newest: int) -> None:
        """Say who is refused.

        Args:
            name: of what does not support the level.
            what: what uses the level.
            level: its number.
            oldest: what `name` supports, from this one
            newest: to this one.
        """
        reason, remedy = "old", "run the version that the other workers have"
        if level < oldest:
            reason, remedy = "new", "first run `ringfaust upgrade finish` with the version before"
        super().__init__(
            f"{name} is too {reason}: {what} uses feature level {level}, and it supports levels "
            f"{oldest} to {newest}. Nothing was changed; {remedy}"
        )


class ProtocolError(RingfaustError):
    """A record from outside is not valid. It goes to the dead topic with `reason`.

    Attributes:
        reason: one word for the dead record (`undecodable`, `too_large` or `skipped`).
    """

    def __init__(self, text: str, reason: str = "undecodable") -> None:
        super().__init__(text)
        self.reason = reason


class MissingExtra(RingfaustError):
    """Packages of an extra are not installed. The text has the command that installs them.

    Attributes:
        modules: what cannot be imported.
    """

    def __init__(self, user: str, modules: list[str], extra: str) -> None:
        """`user`: what needs the packages, as the subject of a sentence."""
        super().__init__(
            f"{user} needs packages that are not installed ({', '.join(modules)}). To install "
            f"them from a checkout of ringfaust: pip install '.[{extra}]'"
        )
        self.modules = modules


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return half a sentence that names the known word most like this one, or all known words."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(words)


def reason_of_system(error: OSError | UnicodeError) -> str:
    """Return why an address cannot be used. A name such as `kafka..svc` is no `OSError`."""
    return getattr(error, "strerror", None) or str(error)
