"""Crashes of a worker or job that several files share.

Files with a crash are played first, and each waits at its crash until all of them have reached one.
Then the process is killed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

from ringfaust.testing.scenario.grammar import Scenario


class SharedCrashes:
    """Kills the process once for all files that have reached a crash.

    Args:
        restart: kills the process and starts it again.
    """

    def __init__(self, restart: Callable[[], None]) -> None:
        self._restart = restart
        self._changed = Condition()
        self._registered = 0
        self._waiting = 0
        self._kills = 0

    @contextmanager
    def register(self, scenario: Scenario) -> Iterator[None]:
        """Register a file for the block, if it has a crash or one would affect it."""
        counts = scenario.crashes() or scenario.has_xids()
        with self._changed:
            self._registered += counts
        try:
            yield
        finally:
            with self._changed:
                self._registered -= counts
                self._kill_if_all_wait()

    def crash(self) -> None:
        """Wait for the other registered files; return when the process has been started again."""
        with self._changed:
            self._waiting += 1
            before = self._kills
            self._kill_if_all_wait()
            self._changed.wait_for(lambda: self._kills > before)

    def _kill_if_all_wait(self) -> None:
        if self._waiting and self._waiting >= self._registered:
            self._restart()
            self._waiting = 0
            self._kills += 1
            self._changed.notify_all()
