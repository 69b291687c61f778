"""Runs a worker or a job as a separate process, and stops or kills it by its process id."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ringfaust.compiled import python
from ringfaust.errors import RingfaustError

_STOP_SECONDS = 20.0

# Kills the process if ours ends without a goodbye, for example because it is killed.
_GUARD = 'read -r goodbye || kill -s KILL -- "-$1"'


def log_tail(path: Path, most: int = 30) -> str:
    """Return the last lines of a log."""
    if not path.exists():
        return "(there is no log)"
    with path.open(encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, most)).rstrip() or "(the log is empty)"


class WorkerFailed(RingfaustError):
    """A worker or job ended unexpectedly or does not answer. What to do: read its log, below."""

    def __init__(self, what: str, log_path: Path) -> None:
        super().__init__(f"The worker {what}. The last lines of its log:\n{log_tail(log_path)}")


class Process:
    """A `ringfaust` command that runs in the background.

    Args:
        arguments: the command without the leading `ringfaust`.
        log_path: file to which its output is appended.
    """

    def __init__(self, arguments: Sequence[str], log_path: Path) -> None:
        self._arguments = arguments
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._is_restarting = False

    def start(self) -> None:
        """Start the process. Returns at once; ask the worker over its protocol whether it is up."""
        command = [*python(), "-m", "ringfaust", *self._arguments]
        with self._log_path.open("ab") as log:
            # It runs in a session of its own: Ctrl-C reaches only us, and we stop the process.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "ringfaust-guard", str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its session."""
        assert self._process is not None, "it is not started"
        return self._process.pid

    @contextmanager
    def restarting(self) -> Iterator[None]:
        """Kill the process for the block, and start it again. Other threads may `check` it."""
        self._is_restarting = True
        try:
            self.kill()
            yield
            self.start()
        finally:
            self._is_restarting = False

    def check(self) -> None:
        """Check that the process runs, or is about to run again.

        Raises:
            WorkerFailed: it was not started or has ended.
        """
        process = self._process
        if self._is_restarting:
            return
        if process is None:
            raise self.failed("is not started")
        if (code := process.poll()) is not None:
            raise self.failed(f"ended unexpectedly with exit code {code}")

    def failed(self, what: str) -> WorkerFailed:
        """Return an error about this process, with the last lines of its log."""
        return WorkerFailed(what, self._log_path)

    def kill(self) -> None:
        """Kill the process and everything it started in its session, as a power cut would."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # all of them have ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._dismiss_guard()

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended.

        Raises:
            WorkerFailed: it still runs after so many seconds.
        """
        assert self._process is not None, "it is not started"
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.failed(f"still runs after {seconds:.0f} s") from None
        self._dismiss_guard()

    def stop(self) -> None:
        """Stop the process in order; kill it if it does not end within 20 seconds."""
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
    """`ringfaust worker` with a configuration folder."""

    def __init__(self, config_folder: Path, log_path: Path) -> None:
        super().__init__(["worker", "--config", str(config_folder)], log_path)
