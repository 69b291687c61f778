"""The memory budget of a worker: intake pauses before the process is killed (R121).

Its parts have bounds of their own, which docs/operations.md lists. What they come to in this
process on this machine, only its resident memory tells.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ringfaust.core.limits import STEP_BYTES
from ringfaust.worker.partition.input_buffer import MAX_BATCH_BYTES
from ringfaust.worker.store.rocks import MEMTABLE_BYTES, MEMTABLES

log = logging.getLogger(__name__)

LOOK_S = 0.1
"""How often the memory is measured."""
TRICKLE_S = 1.0
"""How often an input is read once although intake is paused: a budget that is too small makes the
worker slow, and does not stop it."""
_TRIM_S = 10.0
"""How often memory above the budget is given back to the system, which takes up to a second."""
_RESUME_SHARE = 0.95
"""Of the budget: intake resumes below."""
PARTITION_BYTES = MEMTABLES * MEMTABLE_BYTES + 2 * MAX_BATCH_BYTES + 2 * STEP_BYTES
"""What each partition may take besides the caches: RocksDB's memtables, the input that waits and
that is decided, and two transactions, of which one is committed while the next is decided."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """The resident memory of this process; 0 if the system does not tell."""
    with suppress(OSError):
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    return 0


def trim() -> None:
    """Collect garbage, and give freed memory back to the system."""
    gc.collect()
    with suppress(AttributeError, OSError):  # glibc has it
        ctypes.CDLL(None).malloc_trim(0)


class MemoryBudget:
    """Whether the process has more memory than it may, and whether it may read on."""

    def __init__(
        self,
        most_bytes: int,
        resident: Callable[[], int] = resident_bytes,
        free: Callable[[], None] = trim,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Measure nothing yet.

        Args:
            most_bytes: the budget.
            resident: measures the memory.
            free: gives back what is not used.
            now_s: the time in seconds, which never goes back.
        """
        self.most_bytes = most_bytes
        self.is_exceeded = False
        """Whether intake is paused."""
        self._resident = resident
        self._free = free
        self._now_s = now_s
        self._next_free_s = self._next_trickle_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Measure once, and log what changes."""
        allowed = self.most_bytes * (_RESUME_SHARE if self.is_exceeded else 1)
        found = self._resident()
        if found > allowed and self._now_s() >= self._next_free_s:
            self._next_free_s = self._now_s() + _TRIM_S
            self._free()
            found = self._resident()
        were_exceeded, self.is_exceeded = self.is_exceeded, found > allowed
        if self.is_exceeded and not were_exceeded:
            log.warning(
                "intake is paused: the process has %d MiB, and memory_bytes allows %d MiB",
                found >> 20, self.most_bytes >> 20,
            )  # fmt: skip
        elif were_exceeded and not self.is_exceeded:
            log.warning("intake continues: the process has %d MiB", found >> 20)

    def admits(self) -> bool:
        """Whether inputs may be read now: while intake is paused, once a second."""
        if self.is_exceeded:
            now_s = self._now_s()
            if now_s < self._next_trickle_s:
                return False
            self._next_trickle_s = now_s + TRICKLE_S
        return True
