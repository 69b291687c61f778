"""The executors of a job on a cluster of this machine (`local-cluster`)."""

from __future__ import annotations

import os
from pathlib import Path


def executors(session: int) -> list[int]:
    """Process ids of the executors in a session, which is the driver's process id."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"CoarseGrainedExecutorBackend" in path.read_bytes():
                pid = int(path.parent.name)
                found += [pid] if os.getsid(pid) == session else []
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
