"""Child processes: started here, measured by /proc, and stopped by their process id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]
STOP_S = 30.0
DEADLINE_S = 900.0
"""How long a load may take before the benchmark gives up."""
_TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu_s(of: int | None = None, without: int = 0) -> float:
    """Seconds of user and system time of a process and of all that it has started.

    Args:
        of: its process id; None: this one.
        without: process id of a child that does not count, nor does what it has started.
    """
    root = of or os.getpid()
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has just ended
            continue
        fields = text.rpartition(")")[2].split()
        pid = int(text.split(maxsplit=1)[0])
        parents[pid] = int(fields[1])
        used[pid] = sum(map(int, fields[11:15]))  # with the children that have ended

    def is_ours(pid: int) -> bool:
        while pid not in (root, without, 0):
            pid = parents.get(pid, 0)
        return pid == root

    return sum(ticks for pid, ticks in used.items() if is_ours(pid)) / _TICKS


def executors(session: int) -> list[int]:
    """Process ids of the Spark executors in a session, which is their driver's process id."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"CoarseGrainedExecutorBackend" in path.read_bytes():
                pid = int(path.parent.name)
                found += [pid] if os.getsid(pid) == session else []
        except OSError:  # it has just ended
            continue
    return found


class Failed(Exception):
    """A process ended too early, or a load did not end in time."""


class Process:
    """A child process that writes its log to a file. Its `with` block ends it."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Seconds of user and system time that it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def check(self) -> None:
        """Raise `Failed` if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise Failed(f"a process ended with {code}; its log:\n{self.tail()}")

    def wait(self, seconds: float = DEADLINE_S) -> None:
        """Wait until it has ended well."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"a process still runs after {seconds:.0f} s:\n{self.tail()}") from None
        if code != 0:
            raise Failed(f"a process ended with {code}; its log:\n{self.tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help."""
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3_000:]


def program(name: str, log: Path, **options: object) -> Process:
    """Start one of `bench.programs`, which reads its options as JSON."""
    return Process([sys.executable, "-m", f"bench.programs.{name}", json.dumps(options)], log)


def until(
    true: Callable[[], bool], what: str, watched: Sequence[Process], every_s: float = 0.05
) -> None:
    """Wait for a condition while the watched processes run.

    Raises:
        Failed: one of them ended, or the condition is not true within `DEADLINE_S`.
    """
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        for process in watched:
            process.check()
        if time.monotonic() > deadline:
            raise Failed(f"not within {DEADLINE_S:.0f} s: {what}")
        time.sleep(every_s)


def read_result(path: Path) -> dict[str, Any]:
    """What a program has written at its end."""
    result: dict[str, Any] = json.loads(path.read_text())
    return result
