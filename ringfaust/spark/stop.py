"""SIGTERM and Ctrl-C while Spark works."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stop_asked(*, interrupt: bool = False) -> Iterator[Callable[[], bool]]:
    """Gives what tells whether SIGTERM or SIGINT came; a second one acts as ever.

    Python's own way, a KeyboardInterrupt, may come in a call to the JVM and get lost there: py4j
    takes some for the end of an iteration. So whoever works in rounds asks between two of them.

    Args:
        interrupt: raise KeyboardInterrupt too, for a round may take long.
    """
    asked = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()
        restore()
        if interrupt:
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        restore()
