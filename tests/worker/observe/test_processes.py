"""The pages of several workers on one port."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from ringfaust.config import WebConfig
from ringfaust.worker.observe import processes as observed
from ringfaust.worker.observe.metrics import exposition, gauge
from ringfaust.worker.observe.processes import processes_app
from ringfaust.worker.observe.web import as_metrics, served


def pages(problem: str, lag: float) -> web.Application:
    """What a worker would serve."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ready'}\n")

    async def metrics(_: web.Request) -> web.Response:
        return as_metrics(exposition([gauge("lag", "Records.", "topic", [("in", lag)])]))

    async def detailed(request: web.Request) -> web.Response:
        return web.Response(status=400, text=f"family {request.query['family']!r}\n")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/metrics/detailed", detailed)
    return app


@asynccontextmanager
async def client_of(
    folder: Path, *workers: web.Application, ended: int = 0
) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    """The pages of all; the last ones of the processes do not run."""
    sockets = [folder / str(number) for number in range(len(workers) + ended)]
    async with AsyncExitStack() as opened:
        for app, socket in zip(workers, sockets, strict=False):
            await opened.enter_async_context(served(app, "", 0, socket))
        server = TestServer(processes_app(sockets, WebConfig()))
        yield await opened.enter_async_context(TestClient(server))


async def test_metrics_say_which_process_they_are_from(tmp_path: Path) -> None:
    async with client_of(tmp_path, pages("", 3), pages("", 5), ended=1) as client:
        lines = (await (await client.get("/metrics")).text()).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'ringfaust_process_up{process="0"} 1.0',
        'ringfaust_process_up{process="1"} 1.0',
        'ringfaust_process_up{process="2"} 0.0',
        'lag{process="0",topic="in"} 3.0',
        'lag{process="1",topic="in"} 5.0',
    ]
    assert lines.count("# TYPE lag gauge") == 1


async def test_they_are_ready_if_all_are(tmp_path: Path) -> None:
    async with client_of(tmp_path, pages("", 0), pages("recovering", 0), ended=1) as client:
        answer = await client.get("/readyz")
        assert answer.status == 503
        assert await answer.text() == "process 1: recovering\nprocess 2: it does not answer\n"
        health = await client.get("/healthz")
        assert health.status == 503
        assert await health.text() == "process 2: it does not answer\n"
    (tmp_path / "ready").mkdir()
    async with client_of(tmp_path / "ready", pages("", 0), pages("", 0)) as client:
        for page in ("/readyz", "/healthz"):
            assert (await client.get(page)).status == 200


async def test_a_process_that_hangs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its port accepts a connection, and nobody answers."""
    monkeypatch.setattr(observed, "_TIMEOUT_S", 0.5)
    async with client_of(tmp_path, pages("", 0), ended=1) as client:
        with socket.socket(socket.AF_UNIX) as hung:
            hung.bind(str(tmp_path / "1"))
            hung.listen()
            health = await client.get("/healthz")
            assert health.status == 503
            assert await health.text() == "process 1: it does not answer\n"


def test_prometheus_gets_the_metrics_of_the_others_before_it_gives_up() -> None:
    assert max(observed._TIMEOUT_S, observed._DETAILED_TIMEOUT_S) < 10, "its own time limit"


async def test_a_question_that_is_refused_is_refused_by_all(tmp_path: Path) -> None:
    async with client_of(tmp_path, pages("", 0), pages("", 0)) as client:
        answer = await client.get("/metrics/detailed", params={"family": "x"})
        assert (answer.status, await answer.text()) == (400, "family 'x'\n")


async def test_only_our_names_are_answered(tmp_path: Path) -> None:
    async with client_of(tmp_path, pages("", 0)) as client:
        assert (await client.get("/metrics", headers={"Host": "evil.example"})).status == 421
