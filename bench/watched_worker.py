"""`ringfaust` with a log of everything that blocks the event loop, for `bench.large_worker`.

Each line: when it ended (s since 1970), how long it took (s), and its CPU time (s).
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from ringfaust.cli.main import main

LEAST_S = 0.02
"""Shorter blocks are not logged."""


def watch(path: Path) -> None:
    """Time each callback of the event loop."""
    run = asyncio.events.Handle._run
    log = path.open("a", buffering=1)

    def timed(handle: asyncio.Handle) -> None:
        began, cpu = time.monotonic(), time.thread_time()
        run(handle)
        took = time.monotonic() - began
        if took > LEAST_S:
            log.write(f"{time.time():.3f} {took:.3f} {time.thread_time() - cpu:.3f}\n")

    asyncio.events.Handle._run = timed  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    watch(Path(sys.argv.pop(1)))
    main()
