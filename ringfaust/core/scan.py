"""How far dispatch has looked for the messages that a selector matches (R14, R15).

Without it, each dispatch would look again at all messages that no consumer wants. It is not stored:
after a restart, the first dispatch looks at all of them once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

from ringfaust.core import limits
from ringfaust.core.selector import Selector

if TYPE_CHECKING:
    from ringfaust.core.model import Message

NOWHERE: Final = -1
"""Before the first position."""


class Scan:
    """The places among the ready messages where a selector may still match one.

    For each priority level: no message up to `upto` matches, but for some of those in `late`. This
    depends on nothing but the selector and the messages, which do not change while they are ready:
    neither on credits and groups, nor on who else consumes.
    """

    __slots__ = ("late", "selector", "upto")

    def __init__(self, selector: Selector | None) -> None:
        """`selector`: None matches everything, so no place is passed."""
        self.selector = selector
        self.upto = [NOWHERE] * limits.PRIORITIES
        """By level: a position."""
        self.late: list[list[int]] = [[] for _ in range(limits.PRIORITIES)]
        """By level, in order: positions up to `upto` where a message was placed since. It may have
        left. At most `limits.LATE`."""

    def matches(self, message: Message) -> bool:
        """Whether the selector matches it."""
        return self.selector is None or self.selector.matches(message)

    def placed(self, level: int, position: int) -> None:
        """A message became ready."""
        if position > self.upto[level]:
            return
        late = self.late[level]
        index = bisect_left(late, position)
        if index < len(late) and late[index] == position:
            return
        if len(late) < limits.LATE:
            insort(late, position)
        else:
            self.upto[level] = min(late[0], position) - 1
            late.clear()

    def passed(self, level: int, after: int, position: int) -> None:
        """No ready message behind `after`, up to `position`, matches the selector, which it has."""
        if after > self.upto[level]:
            return
        late = self.late[level]
        if late:
            self.late[level] = [each for each in late if not after < each <= position]
        self.upto[level] = max(self.upto[level], position)
