"""Time. The real Artemis has only the real one, so a history's slots are laid over it.

Slot n of a history begins at `origin + n * slot_ms`. Where nothing waits for a time, the origin is
moved, so that only what has to be waited for costs time. If an operation is so slow that what was
to come later came meanwhile, the history is played again with longer slots: `Late`.
"""

from __future__ import annotations

from typing import Protocol

APART_MS = 12
"""Two times that close might be one to Artemis' scheduler."""


class Broker(Protocol):
    """Whose time it is."""

    def now_ms(self) -> int:
        """Its clock."""

    def wait(self, ms: int) -> None:
        """Let time pass."""


class Late(Exception):
    """This machine was too slow for what takes time."""


class Clock:
    """The slots of one history."""

    def __init__(self, slot_ms: int, broker: Broker) -> None:
        self.slot_ms = slot_ms
        self._broker = broker
        self.slot = 0
        self.awaited: set[int] = set()
        """Times at which something comes due or expires, in ms since 1970."""
        self._origin_ms = broker.now_ms()

    def settle(self) -> None:
        """Before an operation: if nothing is awaited, the slot begins now."""
        if not self.awaited:
            self._origin_ms = self._broker.now_ms() - self.slot * self.slot_ms

    def after(self, slots: int, part: float = 0.0) -> int:
        """The time that many slots from now.

        Raises:
            Late: it has passed, or it is too near to another one.
        """
        at_ms = self._origin_ms + int((self.slot + slots + part) * self.slot_ms)
        if at_ms < self._broker.now_ms() + APART_MS or self._near(at_ms) - {at_ms}:
            raise Late
        return at_ms

    def space(self, delay_ms: int) -> None:
        """Wait until `delay_ms` from now is apart from all times that are awaited."""
        while self._near(self._broker.now_ms() + delay_ms):
            self._broker.wait(2)

    def _near(self, at_ms: int) -> set[int]:
        """Which awaited times might be one with it."""
        return {other for other in self.awaited if abs(at_ms - other) <= APART_MS}

    def check(self, ended_ms: int, times: set[int], since_ms: int) -> None:
        """After an operation: nothing may have come meanwhile but what it waited for.

        Raises:
            Late: something has.
        """
        if any(since_ms < at <= ended_ms for at in times):
            raise Late
