"""`ringfaust console`, and the console in a worker."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from ringfaust.cli.operate import Target, say
from ringfaust.config import QueuesConfig, WebConfig, WorkerConfig
from ringfaust.config.documents import check
from ringfaust.console.access import READ_TOKEN_VARIABLE, new_token, read_token
from ringfaust.console.app import attach_console
from ringfaust.console.backend import Backend
from ringfaust.console.context import ConsoleOptions
from ringfaust.errors import RingfaustError, reason_of_system

_STOP_TIMEOUT_S = 2.0


class CannotServe(RingfaustError):
    """The console cannot run as it was asked to. The text names the option and what is valid."""


def run(
    target: Target,
    bind: str,
    port: int,
    *,
    token_file: Path | None = None,
    read_token_file: Path | None = None,
    public_url: str | None = None,
    allow_changes: bool,
) -> None:
    """Serve the console until Ctrl-C or SIGTERM.

    Raises:
        CannotServe: the address or the port cannot be used, or there is a token for changes that
            are not allowed.
        BadToken: a token cannot be read, is too short, or is the same as the other.
        ConfigError: the configuration cannot be read, or the public address is not valid.
    """
    if token_file is not None and not allow_changes:
        raise CannotServe(
            "--token-file: its token is for changes: add --allow-changes. For one that only "
            "allows to read, use --read-token-file"
        )
    worker, queues = target.load()
    web_config = worker.web
    if public_url is not None:
        given = {**web_config.model_dump(), "public_url": public_url}
        web_config = check(WebConfig, given, "--public-url")
    token = (read_token(token_file) or _announce("changes")) if allow_changes else ""
    options = console_options(
        web_config, bind, token, read_token(read_token_file, READ_TOKEN_VARIABLE)
    )
    options = replace(options, allows_changes=allow_changes)
    if options.needs_login and not (options.token or options.read_token or options.oidc):
        options = replace(options, read_token=_announce("reading"))
    asyncio.run(_serve(Backend(worker, queues), options, port))


def _announce(use: str) -> str:
    """Make a token, and print it."""
    token = new_token()
    say(f"token for {use}: {token}")
    return token


def console_options(
    web_config: WebConfig, bind: str, token: str, token_to_read: str = ""
) -> ConsoleOptions:
    """Who may use a console that listens at `bind`, with what worker.yaml says of it."""
    return ConsoleOptions(
        bind=bind, hosts=web_config.host_names, proxies=web_config.proxy_networks,
        public_url=web_config.public_url or "", token=token, read_token=token_to_read,
        oidc=web_config.oidc if web_config.oidc.issuer else None,
    )  # fmt: skip


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
        except (OSError, UnicodeError) as error:
            raise CannotServe(
                f"--bind {options.bind} --port {port}: cannot listen there: "
                f"{reason_of_system(error)}"
            ) from None
        host = f"[{options.bind}]" if ":" in options.bind else options.bind
        where = options.public_url or f"http://{host}:{port}"
        say(f"console of {backend.worker.application}: {where}/console/")
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
    options = console_options(
        worker.web, worker.web.bind, read_token(worker.web.token_file),
        read_token(worker.web.read_token_file, READ_TOKEN_VARIABLE),
    )  # fmt: skip
    backend = Backend(worker, queues)

    def attach(app: web.Application) -> None:
        attach_console(app, backend, options)

    return attach
