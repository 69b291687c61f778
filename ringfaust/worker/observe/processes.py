"""The pages of several workers of one machine: what each of them says, on one port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from ringfaust.config import WebConfig
from ringfaust.worker.observe.metrics import exposition, gauge
from ringfaust.worker.observe.web import as_metrics, new_app

UP = "ringfaust_process_up"
_DETAILED = "/metrics/detailed"
_TIMEOUT_S = 3.0
_DETAILED_TIMEOUT_S = 8.0
"""A pattern looks at all queues. Both are shorter than what Prometheus waits, by default 10 s: the
others' metrics must arrive."""


def processes_app(sockets: Sequence[Path], config: WebConfig) -> web.Application:
    """The pages.

    Args:
        sockets: where each serves its own pages.
        config: who may read them.
    """

    async def answers(request: web.Request) -> list[tuple[int, str]]:
        return await asyncio.gather(*(_ask(each, request) for each in sockets))

    async def verdict(request: web.Request, good: str) -> web.Response:
        lines = [
            f"process {number}: {line}\n"
            for number, (status, text) in enumerate(await answers(request))
            for line in text.splitlines()
            if status != 200
        ]
        return web.Response(status=503 if lines else 200, text="".join(lines) or good)

    async def metrics(request: web.Request) -> web.Response:
        found = await answers(request)
        for status, text in found:
            if status == web.HTTPBadRequest.status_code:
                return web.Response(status=status, text=text)
        up = [(number, status == 200) for number, (status, _) in enumerate(found)]
        about = gauge(UP, "1 if the process answers.", "process", up)
        texts = {number: text for number, (status, text) in enumerate(found) if status == 200}
        merged = await asyncio.to_thread(merge, texts)
        return as_metrics(exposition([about, *merged]))

    app = new_app(config)
    app.router.add_get("/healthz", partial(verdict, good="ok\n"))
    app.router.add_get("/readyz", partial(verdict, good="ready\n"))
    app.router.add_get("/metrics", metrics)
    app.router.add_get(_DETAILED, metrics)
    return app


async def _ask(socket: Path, request: web.Request) -> tuple[int, str]:
    """The same page of one process: its status and text; 503 if it does not answer."""
    connector = aiohttp.UnixConnector(str(socket))
    timeout = aiohttp.ClientTimeout(
        total=_DETAILED_TIMEOUT_S if request.path == _DETAILED else _TIMEOUT_S
    )
    try:
        async with (
            aiohttp.ClientSession("http://localhost", connector=connector) as session,
            session.get(request.rel_url, timeout=timeout) as answer,
        ):
            return answer.status, await answer.text()
    except (TimeoutError, aiohttp.ClientError, OSError):
        return 503, "it does not answer\n"


def merge(texts: dict[int, str]) -> list[Metric]:
    """The metrics of several processes in one exposition, each with the label `process`."""
    families: dict[str, Metric] = {}
    for number, text in texts.items():
        for family in text_string_to_metric_families(text):
            merged = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            merged.samples += [
                sample._replace(labels={"process": str(number), **sample.labels})
                for sample in family.samples
            ]
    return [*families.values()]
