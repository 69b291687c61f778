"""An event loop in a thread of its own, so that connections stay alive between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs from `with` to its end; any thread may `run` something on it."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """Its result, when it is done."""
        future = asyncio.run_coroutine_threadsafe(task, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
