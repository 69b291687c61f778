"""SIGTERM and Ctrl-C while Spark works."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stop_requested(*, interrupt: bool = False) -> Iterator[Callable[[], bool]]:
    """Catch the first SIGTERM or SIGINT. The second one has its usual effect.

    Python's default, a KeyboardInterrupt, can be raised inside a call to the JVM and get lost
    there: Py4J takes some of them for the end of an iteration. Code that works in rounds therefore
    asks between two rounds whether it should stop.

    With `interrupt` it also raises KeyboardInterrupt, for code whose rounds take long. What it
    yields says whether a stop was requested.
    """
    requested = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request(_number: int, _frame: FrameType | None) -> None:
        requested.set()
        restore()
        if interrupt:
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, request)
    try:
        yield requested.is_set
    finally:
        restore()
