"""The demo's worker: a real `ringfaust worker`, a process of its own that cannot outlive us."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from pathlib import Path
from typing import Self

from ringfaust.errors import RingfaustError

STOP_SECONDS = 20.0
_LOG_LINES = 15

# The end of its input without a goodbye means that we are gone; then so is the worker.
_GUARD = 'read -r goodbye || kill -TERM "$1"'


class WorkerEnded(RingfaustError):
    """The worker ended while it was needed; the message has the end of its log."""

    def __init__(self, code: int, log_path: Path) -> None:
        with log_path.open(encoding="utf-8", errors="replace") as lines:
            tail = "".join(deque(lines, _LOG_LINES)).rstrip()
        super().__init__(f"The demo's worker ended with code {code}. The end of its log:\n{tail}")


class WorkerProcess:
    """A worker, and the guard that ends it if we are killed."""

    def __init__(self, config: Path, log_path: Path) -> None:
        self._config = config
        self._log_path = log_path
        self._worker: asyncio.subprocess.Process | None = None
        self._guard: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Start it; it has then still to join its group."""
        with self._log_path.open("wb") as log:
            # A session of its own: Ctrl-C is for us, and we decide when the worker has to go.
            self._worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ringfaust", "worker", "--config", str(self._config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._guard = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _GUARD, "ringfaust-guard", str(self._worker.pid)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    async def watch(self) -> None:
        """Wait until it ends.

        Raises:
            WorkerEnded: always, for it is not meant to.
        """
        assert self._worker is not None
        raise WorkerEnded(await self._worker.wait(), self._log_path)

    async def __aexit__(self, *_: object) -> None:
        """Stop it in order, or by force if it does not."""
        worker, guard = self._worker, self._guard
        if worker and worker.returncode is None:
            worker.terminate()
            try:
                await asyncio.wait_for(worker.wait(), STOP_SECONDS)
            except TimeoutError:
                worker.kill()
                await worker.wait()
        if guard:
            await guard.communicate(b"goodbye\n")
