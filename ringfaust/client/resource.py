"""The base classes of all clients, which are open for the duration of an `async with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ringfaust.client.connection import Connection, ConnectOptions, refuse_unknown


class AsyncResource:
    """Starts when an `async with` block is entered, and closes when it is left."""

    async def start(self) -> None:
        """Connect."""
        raise NotImplementedError

    async def close(self) -> None:
        """Disconnect."""
        raise NotImplementedError

    async def _failed(self) -> None:
        """Clean up after an exception in the block, before `close`."""

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; an exception other than a cancellation first calls `_failed`."""
        try:
            if isinstance(error, Exception):
                await self._failed()
        finally:
            await self.close()


class Connected(AsyncResource):
    """A client that has a connection of its own."""

    def __init__(self, options: ConnectOptions, kind: type = ConnectOptions) -> None:
        """`kind`: the TypedDict that has its options."""
        refuse_unknown(options, kind)
        self.connection = Connection(options)

    async def start(self) -> None:
        """Connect.

        Raises:
            ClientError: the application has no topics.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        await self.connection.open()

    async def close(self) -> None:
        """Disconnect."""
        await self.connection.close()
