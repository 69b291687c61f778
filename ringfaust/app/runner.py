"""Run an app in this process, or in several, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

from aiokafka.errors import KafkaConnectionError

from ringfaust.app.app import RingApp
from ringfaust.app.health import ProcessesHealth, ProcessHealth, serve_health
from ringfaust.app.loading import load_app
from ringfaust.errors import RingfaustError
from ringfaust.logs import RateLimitFilter, VisibleFormatter

log = logging.getLogger(__name__)

SUPERVISED = "--supervised"
"""Argument of a process that ends when its standard input does: its supervisor has died."""
RESTART_MIN_S = 1.0
"""The first wait before a process is started again. Each further wait is twice as long."""
RESTART_MAX_S = 30.0
_STEADY_S = 60.0
"""A process that has run for so long is started again after the first wait."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class NoBroker(RingfaustError):
    """No Kafka broker answers. The text names the addresses."""


class Address(NamedTuple):
    """Where to serve the health."""

    host: str
    port: int


def run(
    target: str,
    *,
    processes: int = 1,
    health: Address | None = None,
    is_supervised: bool = False,
) -> None:
    """Run an app until SIGTERM or Ctrl-C; the second of them does not wait for handlers.

    Args:
        target: MODULE:ATTRIBUTE.
        processes: in how many processes. One that ends is started again.
        health: where to serve it; None: nowhere.
        is_supervised: end when the standard input does, too.

    Raises:
        CannotLoad: there is no such app.
        NoBroker: no Kafka broker answers.
        ClientError, KafkaError: see `RingApp.run`.
        CannotServe: `health` is in use, or not of this machine.
    """
    app = load_app(target)
    log_to_stderr()
    if processes > 1:
        asyncio.run(Supervisor(target, processes).run(health))
        return
    try:
        asyncio.run(_run_here(app, health, is_supervised=is_supervised))
    except KafkaConnectionError:
        servers = app.options.get("bootstrap_servers", "127.0.0.1:9092")
        raise NoBroker(
            f"no Kafka broker answers at {servers}: check bootstrap_servers and client_options of "
            f"{target}"
        ) from None


def log_to_stderr() -> None:
    """Write the log to stderr, unless the app has configured logging itself."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("aiokafka").setLevel(logging.WARNING)


async def _run_here(app: RingApp, address: Address | None, *, is_supervised: bool) -> None:
    on_signal(app.stop)
    async with AsyncExitStack() as opened:
        if address is not None:
            await opened.enter_async_context(serve_health(*address, app.health))
        if is_supervised:
            await _on_end_of_input(app.stop)
        await app.run()


def on_signal(stop: Callable[[], None]) -> None:
    """Call `stop` at each SIGTERM and Ctrl-C."""
    loop = asyncio.get_running_loop()
    for each in _SIGNALS:
        loop.add_signal_handler(each, stop)


async def _on_end_of_input(stop: Callable[[], None]) -> None:
    """Call `stop` when the standard input ends."""

    class Input(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            stop()

    await asyncio.get_running_loop().connect_read_pipe(Input, sys.stdin)


class Supervisor:
    """Keeps processes of an app running, and stops them together.

    Args:
        target: MODULE:ATTRIBUTE.
        processes: how many.
    """

    def __init__(self, target: str, processes: int) -> None:
        self._command = [sys.executable, "-m", "ringfaust.app", target, SUPERVISED]
        self._running: list[asyncio.subprocess.Process | None] = [None] * processes
        self._restarts = [0] * processes
        self._stopping = asyncio.Event()

    async def run(self, address: Address | None) -> None:
        """Run until `stop`, and then until all processes have ended."""
        on_signal(self.stop)
        async with AsyncExitStack() as opened:
            if address is not None:
                await opened.enter_async_context(serve_health(*address, self.health))
            await asyncio.gather(*(self._keep(number) for number in range(len(self._running))))

    def stop(self) -> None:
        """Send SIGTERM to all processes, and start none again."""
        self._stopping.set()
        for each in self._running:
            if each is not None and each.returncode is None:
                each.terminate()

    def health(self) -> ProcessesHealth:
        """Which processes run."""
        found = tuple(
            ProcessHealth(None if each is None else each.pid, restarts)
            for each, restarts in zip(self._running, self._restarts, strict=True)
        )
        return ProcessesHealth(all(each.pid is not None for each in found), found)

    async def _keep(self, number: int) -> None:
        """Run one of the processes, and start it again when it ends."""
        loop, wait_s = asyncio.get_running_loop(), RESTART_MIN_S
        while not self._stopping.is_set():
            began_s = loop.time()
            # Of its own session: Ctrl-C reaches the supervisor alone, which stops them all, once.
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            self._running[number] = process
            if self._stopping.is_set():
                process.terminate()
            status = await process.wait()
            self._running[number] = None
            if self._stopping.is_set():
                return
            if loop.time() - began_s > _STEADY_S:
                wait_s = RESTART_MIN_S
            log.warning(
                "process %d has ended with status %d and is started again in %g s",
                process.pid, status, wait_s,
            )  # fmt: skip
            self._restarts[number] += 1
            try:
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
            except TimeoutError:
                wait_s = min(2 * wait_s, RESTART_MAX_S)
