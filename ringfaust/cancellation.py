"""Cancel what uses Kafka clients, without being missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def cancellation_is_kept() -> Iterator[None]:
    """Raise the CancelledError that a Kafka client has ignored while it closed.

    A client of aiokafka that closes cancels tasks of its own, waits for them, and ignores every
    CancelledError meanwhile: also one that was meant for the caller. A loop would go on for ever.

    Raises:
        asyncio.CancelledError: this task was cancelled in the block.
    """
    task = None
    with suppress(RuntimeError):  # no event loop runs this, so nobody cancels it
        task = asyncio.current_task()
    before = task.cancelling() if task else 0
    yield
    if task and task.cancelling() > before:
        raise asyncio.CancelledError


def is_cancelled() -> bool:
    """Whether somebody has cancelled this task: CancelledError may have come from what it awaits.

    A client of aiokafka raises it by itself if it stops before it has asked anything.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def run_again(
    serve: Callable[[], Awaitable[None]], wait_s: float, tell: Callable[[BaseException], None]
) -> None:
    """Run what uses Kafka clients until this task is cancelled, again and again.

    Args:
        serve: runs until an error.
        wait_s: how long to wait after one, in seconds.
        tell: called with each error.
    """
    while True:
        try:
            await serve()
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled():
                raise asyncio.CancelledError from error
            tell(error)
        await asyncio.sleep(wait_s)
