"""Run an asyncio client in a thread of its own, for programs without asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from selectors import DefaultSelector, SelectorKey
from threading import Condition, RLock, Thread
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ringfaust.client.errors import ClientError, Closed, OtherProcess, StartedAlready
from ringfaust.client.resource import AsyncResource

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class _Turns(DefaultSelector):
    """Gives another thread its turn while the loop waits."""

    def __init__(self, turn: RLock) -> None:
        super().__init__()
        self._turn = turn

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        self._turn.release()
        try:
            return super().select(timeout)
        finally:
            self._turn.acquire()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that another thread can use, too, while it has its turn (ADR 62)."""

    def __init__(self) -> None:
        self.turn = RLock()
        """Who has acquired it may use what belongs to the loop."""
        self._progress = Condition(self.turn)
        """Something that a thread waits for has ended."""
        self.has_ended = False
        super().__init__(_Turns(self.turn))

    def serve(self) -> None:
        """Run in this thread until stopped."""
        with self.turn:
            self.run_forever()
            self.has_ended = True
            self._progress.notify_all()

    def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine while another thread waits for it. Ctrl-C cancels it.

        Raises:
            Closed: the loop has ended.
        """
        task: asyncio.Task[T] | None = None
        is_wanted = True

        def begin() -> None:
            nonlocal task
            if is_wanted:
                task = self.create_task(coroutine)
                task.add_done_callback(lambda _: self._progress.notify_all())

        def is_over() -> bool:
            return self.has_ended or task is not None and task.done()

        with self.turn:
            try:
                self.check()
                self.call_soon_threadsafe(begin)
                self._progress.wait_for(is_over)
            finally:
                is_wanted = False
                if task is None:
                    coroutine.close()
                elif not task.done() and not self.has_ended:
                    self.call_soon_threadsafe(task.cancel)
            if task is None or not task.done() or task.cancelled():
                raise Closed("closed meanwhile")
            return task.result()

    def end(self) -> None:
        """Stop, and wait for it. A thread that has its turn gives it up meanwhile."""
        with self.turn:
            self.call_soon_threadsafe(self.stop)
            self._progress.wait_for(lambda: self.has_ended)

    def check(self) -> None:
        """Refuse if it has ended: a signal handler may close the client at any time."""
        if self.has_ended:
            raise Closed("already closed")


class EventLoopThread:
    """An event loop that runs in its own thread from `open` to `close`."""

    def __init__(self) -> None:
        self._loop: _Loop | None = None
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
        self._loop = _Loop()
        self._thread = Thread(target=self._loop.serve, name="ringfaust", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Ctrl-C cancels it.

        Raises:
            Closed: the loop does not run.
            OtherProcess: it runs in the process from which this one was forked.
        """
        try:
            loop = self._opened()
        except ClientError:
            coroutine.close()
            raise
        return loop.finish(coroutine)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the client that waits for nothing. It takes much less than `run`.

        It may not schedule anything but by `call_soon_threadsafe`: a signal can interrupt it.

        Raises:
            Closed, OtherProcess: see `run`.
        """
        loop = self._opened()
        with loop.turn:
            loop.check()
            try:
                return function(*args, **kwargs)
            except RuntimeError:
                loop.check()  # a signal handler has closed it meanwhile
                raise

    def _opened(self) -> _Loop:
        loop = self._loop  # a signal handler may close it at any time
        if loop is None:
            raise Closed("not started or already closed")
        if self._pid != os.getpid():
            raise OtherProcess(self._pid)
        return loop

    def close(self) -> None:
        """End what still runs in the loop, then the loop and its thread."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.finish(_end_tasks())
            finally:
                loop.end()
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
