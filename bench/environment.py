"""What a result depends on besides the program: the machine and the versions."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.processes import ROOT
from ringfaust import compiled
from ringfaust.java.jars import KAFKA
from ringfaust.java.runtime import find_java

_LIBRARIES = ("ringfaust", "faust-streaming", "aiokafka", "rocksdict")


def environment() -> dict[str, object]:
    """Machine, versions, commit, and how busy the machine was before the run."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "load_average_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "java": find_java().version,
        "broker": KAFKA.name,
        "engine": compiled.KIND,
        **{library: version(library) for library in _LIBRARIES},
    }


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
