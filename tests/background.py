"""Work that goes on beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(*works: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """What goes on until it is cancelled at the end of the block."""
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
    """Return once something is true, which other tasks make so."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0)
