"""The worker's web page: metrics for Prometheus, and health for a supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from ringfaust.config import WebConfig
from ringfaust.config.hosts import REFUSAL, is_our_host
from ringfaust.errors import RingfaustError, reason_of_system
from ringfaust.worker.observe.health import Health
from ringfaust.worker.observe.metrics import CONTENT_TYPE, FAMILIES, WorkerMetrics

_STOP_TIMEOUT_S = 2.0

AttachPages = Callable[[web.Application], None]
"""Adds pages to those of the worker: so the worker serves the console without importing it."""


class CannotListen(RingfaustError):
    """The worker cannot listen where `web` says.

    What to do: choose another `web.port` or `web.bind`, or set `web.enabled: false`.
    """


def new_app(config: WebConfig) -> web.Application:
    """An application without pages, which answers to our names alone."""

    @web.middleware
    async def refuse_other_hosts(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not is_our_host(request.host, config.bind, config.host_names):
            return web.Response(status=421, text=REFUSAL)
        return await handler(request)

    return web.Application(middlewares=[refuse_other_hosts])


def web_app(health: Health, metrics: WorkerMetrics, config: WebConfig) -> web.Application:
    """The pages of one worker."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        problems = health.problems()
        if problems:
            return web.Response(status=503, text="".join(f"{each}\n" for each in problems))
        return web.Response(text="ready\n")

    async def coarse(_: web.Request) -> web.Response:
        return as_metrics(metrics.coarse())

    async def detailed(request: web.Request) -> web.Response:
        families = request.query.getall("family", [*FAMILIES])
        if unknown := sorted({*families} - {*FAMILIES}):
            valid = ", ".join(FAMILIES)
            text = f"family {unknown[0]!r} does not exist: use one or more of {valid}\n"
            return web.Response(status=400, text=text)
        return as_metrics(await metrics.detailed(families, request.query.get("queue", "#")))

    app = new_app(config)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", coarse)
    app.router.add_get("/metrics/detailed", detailed)
    return app


def as_metrics(body: bytes) -> web.Response:
    """An answer to Prometheus."""
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


@asynccontextmanager
async def served(
    app: web.Application, bind: str, port: int, socket: Path | None = None
) -> AsyncIterator[None]:
    """Serve the pages within the block.

    Args:
        app: the pages.
        bind: the address to listen on.
        port: its port.
        socket: listen there and nowhere else.

    Raises:
        CannotListen: the address or the port cannot be used.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_TIMEOUT_S)
    await runner.setup()
    try:
        try:
            await (
                web.UnixSite(runner, socket) if socket else web.TCPSite(runner, bind, port)
            ).start()
        except (OSError, UnicodeError) as error:
            raise _cannot_listen(bind, port, error) from None
        yield
    finally:
        await runner.cleanup()


async def check_address(bind: str, port: int) -> None:
    """Refuse what cannot be used before the worker joins the others.

    Raises:
        CannotListen: the address or the port cannot be used.
    """
    loop = asyncio.get_running_loop()
    try:
        # It does not listen: somebody who asks now must not get an answer.
        (await loop.create_server(asyncio.Protocol, bind, port, start_serving=False)).close()
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(bind, port, error) from None


def _cannot_listen(bind: str, port: int, error: OSError | UnicodeError) -> CannotListen:
    return CannotListen(
        f"web: cannot listen on {bind}, port {port}: {reason_of_system(error)}. Choose another "
        "bind or port in worker.yaml, or set enabled: false"
    )
