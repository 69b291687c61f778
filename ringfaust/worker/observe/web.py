"""The worker's web page: metrics for Prometheus, and health for a supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from ringfaust.config import WebConfig
from ringfaust.config.hosts import REFUSAL, is_our_host
from ringfaust.errors import RingfaustError
from ringfaust.worker.observe.health import Health
from ringfaust.worker.observe.metrics import CONTENT_TYPE, FAMILIES, WorkerMetrics

_STOP_TIMEOUT_S = 2.0

AttachPages = Callable[[web.Application], None]
"""Adds pages to those of the worker: so the worker serves the console without importing it."""


class CannotListen(RingfaustError):
    """The worker cannot listen where `web` says.

    What to do: choose another `web.port` or `web.bind`, or set `web.enabled: false`.
    """


def web_app(health: Health, metrics: WorkerMetrics, config: WebConfig) -> web.Application:
    """The pages."""

    @web.middleware
    async def refuse_other_hosts(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not is_our_host(request.host, config.bind, config.host_names):
            return web.Response(status=421, text=REFUSAL)
        return await handler(request)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        problems = health.problems()
        if problems:
            return web.Response(status=503, text="".join(f"{each}\n" for each in problems))
        return web.Response(text="ready\n")

    async def coarse(_: web.Request) -> web.Response:
        return _exposition(metrics.coarse())

    async def detailed(request: web.Request) -> web.Response:
        families = request.query.getall("family", [*FAMILIES])
        if unknown := sorted({*families} - {*FAMILIES}):
            valid = ", ".join(FAMILIES)
            text = f"family {unknown[0]!r} does not exist: use one or more of {valid}\n"
            return web.Response(status=400, text=text)
        return _exposition(await metrics.detailed(families, request.query.get("queue", "#")))

    app = web.Application(middlewares=[refuse_other_hosts])
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", coarse)
    app.router.add_get("/metrics/detailed", detailed)
    return app


def _exposition(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


async def serve(app: web.Application, bind: str, port: int) -> None:
    """Serve the pages until cancelled.

    Raises:
        CannotListen: the address or the port cannot be used.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_TIMEOUT_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, bind, port).start()
        except OSError as error:
            raise CannotListen(
                f"web: cannot listen on {bind}, port {port}: {error.strerror}. Choose another bind "
                "or port in worker.yaml, or set enabled: false"
            ) from None
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
