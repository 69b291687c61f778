"""The clock of a real worker."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager


class SystemClock:
    """This machine's clock and asyncio's timers."""

    def wall_ms(self) -> int:
        """The time in ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Raise TimeoutError in the block after `seconds`; None: never."""
        return asyncio.timeout(seconds)
