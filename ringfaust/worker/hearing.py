"""How far a partition has heard its consumers: until when all their commands are decided (R110)."""

from __future__ import annotations

from ringfaust.core.model import Heard
from ringfaust.worker.interfaces import LogEnd

NOTHING = Heard(0, 0)


class Hearing:
    """Turns the ends of a control log, once they are reached, into the time that was heard.

    The end to reach stays the same until it is reached. So a log that grows without a pause is
    heard too, a little late.
    """

    def __init__(self) -> None:
        self.heard = NOTHING
        """Between these times every command that the brokers had accepted has been decided."""
        self._target: LogEnd | None = None

    def target(self, newest: LogEnd | None) -> LogEnd | None:
        """The end that the partition must reach next; `newest`: the brokers' last answer."""
        if self._target is None and newest is not None and newest.asked_ms != self.heard.until_ms:
            self._target = newest
        return self._target

    def reach(self) -> None:
        """Note that everything up to the target has been decided."""
        assert self._target is not None
        self.heard = Heard(self._target.since_ms, self._target.asked_ms)
        self._target = None
