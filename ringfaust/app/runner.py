"""Run an app in this process, or in several, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from typing import NamedTuple

from aiokafka.errors import KafkaConnectionError

from ringfaust import event_loop
from ringfaust.app.app import RingApp
from ringfaust.app.health import ProcessesHealth, serve_health
from ringfaust.app.loading import load_app
from ringfaust.errors import RingfaustError
from ringfaust.logs import RateLimitFilter, VisibleFormatter
from ringfaust.supervisor import Supervisor, on_end_of_input, on_signal

SUPERVISED = "--supervised"
"""Argument of a process that ends when its standard input does: its supervisor has died."""

DISCONNECT_S = 10.0
"""How long a process may take to stop beside what it gives its handlers."""


class NoBroker(RingfaustError):
    """No Kafka broker answers. The text names the addresses."""


class Address(NamedTuple):
    """Where to serve the health."""

    host: str
    port: int


def run(
    target: str, *, processes: int = 1, health: Address | None = None, is_supervised: bool = False
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
        if status := asyncio.run(_run_processes(app, target, processes, health)):
            sys.exit(status)
        return
    try:
        event_loop.run(_run_here(app, health, is_supervised=is_supervised))
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
            await on_end_of_input(app.stop)
        await app.run()


async def _run_processes(app: RingApp, target: str, processes: int, address: Address | None) -> int:
    """Run the app in several processes. Returns the exit status."""
    command = ["-m", "ringfaust.app", target, SUPERVISED]
    supervisor = Supervisor([command] * processes, app.grace_s + DISCONNECT_S)

    def health() -> ProcessesHealth:
        found = supervisor.processes()
        return ProcessesHealth(all(each.pid is not None for each in found), found)

    async with AsyncExitStack() as opened:
        if address is not None:
            await opened.enter_async_context(serve_health(*address, health))
        return await supervisor.run()
