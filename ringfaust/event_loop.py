"""The event loop of workers and of `ringfaust run`: uvloop's, except on Windows (ADR 61)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

if sys.platform == "win32":
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop

__all__ = ["new_event_loop", "run"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
