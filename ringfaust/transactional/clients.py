"""Clients of aiokafka that are connected for one block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from ringfaust.transactional.vendor import Stoppable, stop_client


class Startable(Stoppable, Protocol):
    """A consumer or a producer of aiokafka, before it is started."""

    async def start(self) -> None:
        """Connect."""


C = TypeVar("C", bound=Startable)


@asynccontextmanager
async def connected(client: C) -> AsyncIterator[C]:
    """Start a client, and stop it at the end of the block, or if it cannot start."""
    try:
        await client.start()
        yield client
    finally:
        await stop_client(client)
