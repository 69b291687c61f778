"""Kept small: what the tests of applications share."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

DEADLINE_S = 30
QUEUES: dict[str, Any] = {
    "routes": [
        {"topic": "orders", "queue": "orders"},
        {"topic": "invoices", "queue": "invoices"},
    ],
    "queues": {"orders": {"max_attempts": 3}, "invoices": {}},
}


class Order(BaseModel):
    item: str
    count: int


class PaymentDownError(Exception):
    """The payment service is down."""


class Gate:
    """Handlers wait at it, and tests see who does."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting: list[Any] = []
        self.most = 0
        self._arrived = asyncio.Condition()

    async def wait(self, what: Any) -> None:
        async with self._arrived:
            self.waiting.append(what)
            self.most = max(self.most, len(self.waiting))
            self._arrived.notify_all()
        try:
            await self.opened.wait()
        finally:
            self.waiting.remove(what)

    async def has(self, count: int) -> None:
        """Return when so many wait."""
        async with asyncio.timeout(DEADLINE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.waiting) >= count)


class ThreadGate:
    """The same for one plain function."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Event()

    def wait(self) -> None:
        self.entered.set()
        self.opened.wait(DEADLINE_S)


@contextmanager
def unlogged() -> Iterator[None]:
    """Log nothing: pytest-xdist ends if it is to pass on half a character."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


async def until(is_true: Callable[[], object]) -> None:
    """Return when something is true, which other tasks make so."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_true():
            await asyncio.sleep(0.01)
