"""What all clients have in common: they are open for the length of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class AsyncResource:
    """Started at the begin of an `async with` block, closed at its end."""

    async def start(self) -> None:
        """Connect."""
        raise NotImplementedError

    async def close(self) -> None:
        """Disconnect."""
        raise NotImplementedError

    async def _failed(self) -> None:
        """The block ends with an exception; `close` follows."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            await self._failed()
        await self.close()
