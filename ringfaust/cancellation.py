"""Cancel what uses Kafka clients, without being missed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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
