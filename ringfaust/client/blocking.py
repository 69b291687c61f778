"""Run an asyncio client in a thread of its own, for programs without asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from threading import Thread
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ringfaust.client.errors import Closed, OtherProcess, StartedAlready
from ringfaust.client.resource import AsyncResource
from ringfaust.event_loop import new_event_loop

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class EventLoopThread:
    """An event loop that runs in its own thread from `open` to `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    @property
    def is_open(self) -> bool:
        """Whether the loop runs. In a forked process it does not: that has no other thread."""
        return self._loop is not None and self._pid == os.getpid()

    def open(self) -> None:
        """Start the thread.

        Raises:
            StartedAlready: it runs.
        """
        if self._loop is not None:
            raise StartedAlready
        self._pid = os.getpid()
        self._loop = new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="ringfaust", daemon=True)
        self._thread.start()

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Ctrl-C cancels it.

        Raises:
            Closed: the loop does not run.
            OtherProcess: it runs in the process from which this one was forked.
        """
        if self._loop is None:
            task.close()
            raise Closed("not started or already closed")
        if not self.is_open:
            task.close()
            raise OtherProcess(self._pid)
        future = asyncio.run_coroutine_threadsafe(task, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End what still runs in the loop, then the loop and its thread."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result()
            finally:
                loop.call_soon_threadsafe(loop.stop)
                self._thread.join()
                loop.close()


async def _end_tasks() -> None:
    """Cancel what still runs, such as a start that Ctrl-C has interrupted, and let it clean up."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The method that waits for a method of `_inner`, which runs in `_loop`."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._loop.run(method(self._inner, *args, **kwargs))
        return result

    return call


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The method that iterates over what a method of `_inner` yields."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = method(self._inner, *args, **kwargs)

        async def step() -> list[T]:
            async for each in found:
                return [each]
            return []

        while one := self._loop.run(step()):
            yield from one

    return call


class SyncResource:
    """Wraps an asyncio client and runs it in a thread of its own."""

    _inner: AsyncResource

    def __init__(self) -> None:
        self._loop = EventLoopThread()

    def start(self) -> None:
        """Connect; see the asyncio client's `start`."""
        self._loop.open()
        try:
            self._loop.run(self._inner.start())
        except BaseException:
            self._loop.close()
            raise

    def close(self) -> None:
        """Disconnect; see the asyncio client's `close`."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        """Connect."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect; an exception has the effect that it has in the asyncio client."""
        if not self._loop.is_open:
            return
        try:
            self._loop.run(self._inner.__aexit__(kind, error, trace))
        finally:
            self._end()

    def _end(self) -> None:
        """Stop the thread, once the client is disconnected."""
        self._loop.close()
