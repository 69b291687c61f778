"""Runs the commits of a task beside its decisions, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundCommit:
    """Runs a commit as an asyncio task."""

    def __init__(self) -> None:
        self._in_flight: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a commit is in flight."""
        return self._in_flight is not None and not self._in_flight.done()

    @property
    def is_done(self) -> bool:
        """Whether a submitted commit has ended that nobody has waited for."""
        return self._in_flight is not None and self._in_flight.done()

    def submit(self, commit: Coroutine[Any, Any, None], on_done: Callable[[], None]) -> None:
        """Start a commit. Calls `on_done` when it has ended."""
        self._in_flight = asyncio.ensure_future(commit)
        self._in_flight.add_done_callback(lambda _: on_done())

    async def wait(self) -> None:
        """Wait until no commit is in flight. Raises the error of the last one, once."""
        commit, self._in_flight = self._in_flight, None
        if commit is not None:
            await commit

    async def wait_or(self, arrived: asyncio.Event) -> None:
        """Wait until the commit in flight has ended, or until `arrived` is set."""
        await arrived.wait()  # the end of the commit sets it, too

    async def cancel(self) -> None:
        """Abandon the commit in flight."""
        commit, self._in_flight = self._in_flight, None
        if commit is not None:
            commit.cancel()
            await asyncio.wait({commit})
