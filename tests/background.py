"""Run coroutines in the background of a test, and wait for what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(*works: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run coroutines during the block, and cancel them at its end. None may end before."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        yield
        assert not any(each.done() for each in tasks)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
    assert all(each.cancelled() for each in tasks)


async def until(true: Callable[[], object]) -> None:
    """Wait until other tasks have made something true."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0)
