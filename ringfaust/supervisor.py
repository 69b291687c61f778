"""Keep several processes of one program running until a signal stops them."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ringfaust.compiled import python

log = logging.getLogger(__name__)

RESTART_MIN_S = 1.0
"""The first wait before a process is started again. Each further wait is twice as long."""
RESTART_MAX_S = 30.0
REFUSED = 2
"""Exit status of a program that refuses to start, and has said why."""
_STEADY_S = 60.0
"""A process that has run for so long is started again after the first wait."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class SupervisedProcess:
    """One of the processes."""

    pid: int | None
    """None: it is about to be started again."""
    restarts: int


class Supervisor:
    """Keeps processes running, and stops them together.

    Args:
        commands: the arguments of each process, without the Python interpreter's.
        stop_s: how long a process may take to stop, in seconds. Then it is killed.
        environment: of all of them; None: that of this process.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        stop_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._commands = commands
        self._stop_s = stop_s
        self._environment = environment
        self._running: list[asyncio.subprocess.Process | None] = [None] * len(commands)
        self._restarts = [0] * len(commands)
        self._stopping = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Run until `stop`, and then until all processes have ended.

        Returns:
            The exit status: `REFUSED` if a process refused to start, which stops all; else 0.
        """
        on_signal(self.stop)
        await asyncio.gather(*(self._keep(number) for number in range(len(self._commands))))
        return self._status

    def stop(self) -> None:
        """Send SIGTERM to all processes, and start none again. Those that hang are killed later."""
        if not self._stopping.is_set():
            asyncio.get_running_loop().call_later(self._stop_s, self._kill)
        self._stopping.set()
        for _, each in self._alive():
            each.terminate()

    def _kill(self) -> None:
        for number, each in self._alive():
            log.error(
                "process %d (pid %d) has not stopped within %g s: killed",
                number, each.pid, self._stop_s,
            )  # fmt: skip
            each.kill()

    def _alive(self) -> list[tuple[int, asyncio.subprocess.Process]]:
        running = enumerate(self._running)
        return [(at, each) for at, each in running if each is not None and each.returncode is None]

    def processes(self) -> tuple[SupervisedProcess, ...]:
        """Which processes run."""
        return tuple(
            SupervisedProcess(None if each is None else each.pid, restarts)
            for each, restarts in zip(self._running, self._restarts, strict=True)
        )

    async def _keep(self, number: int) -> None:
        """Run one of the processes, and start it again when it ends."""
        loop, wait_s = asyncio.get_running_loop(), RESTART_MIN_S
        while not self._stopping.is_set():
            began_s = loop.time()
            try:
                pid, status = await self._run_once(number)
                ended = f"(pid {pid}) has ended with status {status}"
            except OSError as error:  # no memory, or no more processes: for a while
                status, ended = 0, f"cannot be started ({error})"
            is_steady = loop.time() - began_s > _STEADY_S
            if status == REFUSED and not is_steady and not self._restarts[number]:
                self._status = REFUSED
                self.stop()
            if self._stopping.is_set():
                return
            if is_steady:
                wait_s = RESTART_MIN_S
            log.warning("process %d %s and is started again in %g s", number, ended, wait_s)
            self._restarts[number] += 1
            try:
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
            except TimeoutError:
                wait_s = min(2 * wait_s, RESTART_MAX_S)

    async def _run_once(self, number: int) -> tuple[int, int]:
        """Run a process until it ends, and return its pid and its exit status.

        Raises:
            OSError: it cannot be started.
        """
        # Of its own session: Ctrl-C reaches the supervisor alone, which stops them all, once.
        process = await asyncio.create_subprocess_exec(
            *python(), *self._commands[number],
            stdin=asyncio.subprocess.PIPE, start_new_session=True, env=self._environment,
        )  # fmt: skip
        self._running[number] = process
        try:
            if self._stopping.is_set():
                process.kill()  # it has done nothing yet
            return process.pid, await process.wait()
        finally:
            self._running[number] = None


def on_signal(stop: Callable[[], None]) -> None:
    """Call `stop` at each SIGTERM and Ctrl-C."""
    loop = asyncio.get_running_loop()
    for each in _SIGNALS:
        loop.add_signal_handler(each, stop)


async def on_end_of_input(stop: Callable[[], None]) -> None:
    """Call `stop` when the standard input ends: the supervisor has died."""

    class Input(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            stop()

    await asyncio.get_running_loop().connect_read_pipe(Input, sys.stdin)
