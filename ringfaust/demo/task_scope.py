"""A scope for background tasks: they end when its block ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

StartTask = Callable[[Coroutine[Any, Any, None]], None]


@asynccontextmanager
async def task_scope() -> AsyncIterator[StartTask]:
    """Yield a function that starts background tasks; cancel them at the end of the block.

    If a task fails, the block is cancelled and the task's error is raised.
    """
    tasks: list[asyncio.Task[None]] = []
    try:
        async with asyncio.TaskGroup() as group:
            yield lambda work: tasks.append(group.create_task(work))
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
