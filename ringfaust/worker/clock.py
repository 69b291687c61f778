"""The clock of a real worker, checked against the brokers' (R115)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from aiokafka.errors import KafkaError

from ringfaust.errors import RingfaustError
from ringfaust.times import wall_ms

log = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 60.0
"""How often a clock that agrees with the brokers' is checked."""
_RECHECK_INTERVAL_S = 10.0
"""How often a clock that does not is checked, and reported."""
_LOOK_INTERVAL_S = 0.5
"""How often this clock is compared with itself: a jump shows at once."""


class ClockSkewed(RingfaustError):
    """The clocks of this machine and of the brokers differ too much (R115). Nothing was changed.

    What to do: set the clocks, with NTP for example; or allow more with `clock_skew_max_ms`.
    """

    def __init__(self, skew_ms: int, most_ms: int) -> None:
        super().__init__(f"{_difference(skew_ms)}; {_ADVICE.format(most_ms)}")


_ADVICE = (
    "clock_skew_max_ms allows {} ms. Messages would expire and come due, and consumers time out, "
    "at the wrong time. Set the clocks, with NTP for example"
)


def _difference(skew_ms: int) -> str:
    direction = "ahead of" if skew_ms > 0 else "behind"
    return f"the clock of this machine is {abs(skew_ms) / 1000:,.0f} s {direction} the brokers'"


class SystemClock:
    """This machine's clock and asyncio's timers."""

    @property
    def is_right(self) -> bool:
        """Whether the clock agrees with the brokers', as far as is known."""
        return True

    def wall_ms(self) -> int:
        """The time in ms since 1970."""
        return wall_ms()

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Raise TimeoutError in the block after `seconds`; None: never."""
        return asyncio.timeout(seconds)


class CheckedClock(SystemClock):
    """A clock that is compared with the brokers'.

    While the two do not agree, `wall_ms` counts on from the time when they last did.
    """

    def __init__(
        self, skew_max_ms: int, skew_ms: Callable[[], Awaitable[int]], *, is_checked: bool = False
    ) -> None:
        """`watch` checks it, at once or some time after it was checked.

        Args:
            skew_max_ms: how far the clocks may differ.
            skew_ms: measures by how much this clock is ahead.
            is_checked: it was checked just now, and agrees.
        """
        self._skew_max_ms = skew_max_ms
        self._skew_ms = skew_ms
        self._base_ms, self._base_s = wall_ms(), time.monotonic()
        """When the clock last agreed, by itself and by the timer."""
        self._is_right = self._was_ever_right = is_checked
        self.skew_ms: int | None = None
        """By how much it was ahead when that was last measured; None: it was not yet."""
        self._next_check_s = self._base_s + _CHECK_INTERVAL_S if is_checked else 0.0

    @property
    def is_right(self) -> bool:
        """Whether the clock agrees with the brokers', as far as is known."""
        return self._is_right and not self._has_jumped()

    def wall_ms(self) -> int:
        """The time in ms since 1970."""
        return self._expected_ms() if self._has_jumped() or not self._is_right else wall_ms()

    def _expected_ms(self) -> int:
        return self._base_ms + int((time.monotonic() - self._base_s) * 1000)

    def _has_jumped(self) -> bool:
        return abs(wall_ms() - self._expected_ms()) > self._skew_max_ms

    async def watch(self) -> None:
        """Check the clock until cancelled.

        Raises:
            ClockSkewed: it does not agree at the first check.
        """
        while True:
            is_due = time.monotonic() >= self._next_check_s
            if is_due or (self._is_right and self._has_jumped()):
                self._is_right = self._is_right and not self._has_jumped()
                try:
                    self._note(await self._skew_ms())
                except (KafkaError, OSError, TimeoutError) as error:
                    log.warning("cannot compare the clock with the brokers': %r", error)
                    self._next_check_s = time.monotonic() + _RECHECK_INTERVAL_S
            await asyncio.sleep(_LOOK_INTERVAL_S)

    def _note(self, skew_ms: int) -> None:
        """Use what was measured. A clock that was never right stops the worker."""
        self.skew_ms = skew_ms
        was_right, self._is_right = self._is_right, abs(skew_ms) <= self._skew_max_ms
        if self._is_right:
            self._base_ms, self._base_s = wall_ms(), time.monotonic()
            if self._was_ever_right and not was_right:
                log.warning("the clock of this machine agrees with the brokers' again")
            self._was_ever_right = True
        elif not self._was_ever_right:
            raise ClockSkewed(skew_ms, self._skew_max_ms)
        else:
            log.error(
                "%s. Until they agree, nothing expires, comes due or times out: %s",
                _difference(skew_ms), _ADVICE.format(self._skew_max_ms),
            )  # fmt: skip
        wait_s = _CHECK_INTERVAL_S if self._is_right else _RECHECK_INTERVAL_S
        self._next_check_s = time.monotonic() + wait_s
