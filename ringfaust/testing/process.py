"""A worker or a job as a process of its own, started, killed and stopped by its process id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ringfaust.errors import RingfaustError

_STOP_SECONDS = 20.0
_LOG_LINES = 30

# Ends the worker when we are gone without having said goodbye, killed say.
_GUARD = 'read -r goodbye || kill -s KILL -- "-$1"'


class WorkerFailed(RingfaustError):
    """A worker ended by itself or does not answer. What to do: read the end of its log, below."""

    def __init__(self, what: str, log_path: Path) -> None:
        with log_path.open(encoding="utf-8", errors="replace") as lines:
            tail = "".join(deque(lines, _LOG_LINES)).rstrip() or "(it is empty)"
        super().__init__(f"The worker {what}. The end of its log:\n{tail}")


class Process:
    """A `ringfaust` command that runs beside us; its output goes to a log file."""

    def __init__(self, arguments: Sequence[str], log_path: Path) -> None:
        self._arguments = arguments
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. Whether it works is for the protocol to tell."""
        command = [sys.executable, "-m", "ringfaust", *self._arguments]
        with self._log_path.open("ab") as log:
            # A session of its own: Ctrl-C is for us, and we decide when the worker ends.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "ringfaust-guard", str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id, and that of its session."""
        assert self._process is not None, "it is not started"
        return self._process.pid

    def check(self) -> None:
        """See that it runs.

        Raises:
            WorkerFailed: it does not.
        """
        if self._process is None:
            raise self.failed("is not started")
        if (code := self._process.poll()) is not None:
            raise self.failed(f"ended by itself with code {code}")

    def failed(self, what: str) -> WorkerFailed:
        """An error about this worker, with the end of its log."""
        return WorkerFailed(what, self._log_path)

    def kill(self) -> None:
        """End it at once, as a power cut would, and with it what it started in its session."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._dismiss_guard()

    def stop(self) -> None:
        """End it in order; one that will not is killed."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        guard, self._guard, self._process = self._guard, None, None
        if guard is not None:
            guard.communicate(b"goodbye\n")


class WorkerProcess(Process):
    """`ringfaust worker` with a config folder."""

    def __init__(self, config_folder: Path, log_path: Path) -> None:
        super().__init__(["worker", "--config", str(config_folder)], log_path)
