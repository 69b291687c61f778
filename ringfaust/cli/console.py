"""`ringfaust console`, and the console in a worker."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from ringfaust.cli.operate import Target, say
from ringfaust.config import QueuesConfig, WebConfig, WorkerConfig
from ringfaust.console.access import is_loopback, new_token, read_token
from ringfaust.console.app import ConsoleOptions, attach_console
from ringfaust.console.backend import Backend
from ringfaust.errors import RingfaustError

_STOP_TIMEOUT_S = 2.0


class CannotServe(RingfaustError):
    """The console cannot run as it was asked to. The text names the option and what is valid."""


def run(
    target: Target, bind: str, port: int, token_file: Path | None, *, allow_changes: bool
) -> None:
    """Serve the console until Ctrl-C or SIGTERM.

    Raises:
        CannotServe: the address or the port cannot be used, or changes are not allowed and others
            could read.
        BadToken: the token cannot be read, or is too short.
        ConfigError: the configuration cannot be read.
    """
    if token_file is not None and not allow_changes:
        raise CannotServe("--token-file: a token is for changes: add --allow-changes")
    if not allow_changes and not is_loopback(bind):
        raise CannotServe(
            f"--bind {bind}: other machines need a token even to read, and anyone who has it can "
            "change queues: add --allow-changes, or bind to 127.0.0.1"
        )
    worker, queues = target.load()
    token = read_token(token_file) if allow_changes else ""
    if allow_changes and not token:
        token = new_token()
        say(f"token for changes: {token}")
    options = console_options(worker.web, bind, token)
    asyncio.run(_serve(Backend(worker, queues), options, port))


def console_options(web_config: WebConfig, bind: str, token: str) -> ConsoleOptions:
    """Who may use a console that listens at `bind`, with what worker.yaml says of it."""
    return ConsoleOptions(
        bind=bind, hosts=web_config.host_names, proxies=web_config.proxy_networks, token=token
    )


async def _serve(backend: Backend, options: ConsoleOptions, port: int) -> None:
    app = web.Application()
    attach_console(app, backend, options)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_TIMEOUT_S)
    stopped = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, options.bind, port).start()
        except OSError as error:
            raise CannotServe(
                f"--bind {options.bind} --port {port}: cannot listen there: {error.strerror}"
            ) from None
        host = f"[{options.bind}]" if ":" in options.bind else options.bind
        say(f"console of {backend.worker.application}: http://{host}:{port}/console/")
        if not options.token:
            say("read-only; with --allow-changes, anyone who has the token can make changes")
        await stopped.wait()
    finally:
        await runner.cleanup()


def worker_pages(worker: WorkerConfig, queues: QueuesConfig) -> Callable[[web.Application], None]:
    """What adds the console to the pages of a worker.

    Raises:
        BadToken: the token cannot be read, or is too short.
        MissingExtra: see `Backend`.
    """
    options = console_options(worker.web, worker.web.bind, read_token(worker.web.token_file))

    backend = Backend(worker, queues)

    def attach(app: web.Application) -> None:
        attach_console(app, backend, options)

    return attach
