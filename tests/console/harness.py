"""A console on made-up queues, with an `Admin` that only notes what it is asked."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock, create_autospec

from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer

from ringfaust.cli.console import console_options
from ringfaust.client import Admin
from ringfaust.client.inspected import COUNTS, Excerpt, MessageDetails, MessagePage, QueueDetails
from ringfaust.client.status_rows import QueueRates, QueueStatus, WorkerStatus
from ringfaust.config import QueuesConfig, WebConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.console.app import attach_console
from ringfaust.console.backend import Backend
from ringfaust.console.board import Board
from ringfaust.core.model import Counts
from ringfaust.testing.broker import free_port
from tests.chaos.harness import Application, command, environment

TOKEN = "a-token-for-the-tests"
READ_TOKEN = "a-token-that-only-reads"
_STOP_S = 20
HOSTILE = '<script>alert("1")</script>'


def queue_row(name: str, ready: int = 3, ring_size: int = 10, evicted: float = 0) -> QueueStatus:
    """A queue whose accounts balance."""
    return QueueStatus(
        queue=name, partition=0, time_ms=1_000,
        counts=Counts(ready=ready, added=ready + 7, acked=7),
        rates=QueueRates(added=2.0, evicted=evicted), evicted_by={"overflow": 5}, size_bytes=900,
        oldest_ms=500, consumers=1, paused=(), settings={"ring_size": ring_size},
    )  # fmt: skip


def now_ms() -> int:
    return int(time.time() * 1000)


def worker_row(name: str = "worker-1", silent_ms: int = 0) -> WorkerStatus:
    """A worker of two partitions."""
    return WorkerStatus(
        worker=name, time_ms=now_ms() - silent_ms, started_ms=500, host="here", version="0.1.0",
        engine="compiled", is_ready=True, problems=(), partitions=(0, 1), lag={0: 4},
        recovering={}, clock_skew_ms=3, queues=2, published=2,
    )  # fmt: skip


def message_row(name: str, body: bytes, state: str = "ready") -> MessageDetails:
    """A message in queue `orders`."""
    return MessageDetails(
        id=name, queue="orders", state=state, sequence=1, priority=4, enqueued_ms=1_000,  # type: ignore[arg-type]
        expires_at_ms=0, due_ms=2_000, group="", attempts=0, handovers=0, size_bytes=len(body),
        persistent=True, source="orders/0/0", key=None,
        value=Excerpt(start=body, size_bytes=len(body)), headers={},
    )  # fmt: skip


def queue_details(queue: str, **counts: int) -> QueueDetails:
    """What a worker answers about a queue."""
    return QueueDetails(
        queue=queue, partition=0, also_in=(), counts=dict.fromkeys(COUNTS, 0) | counts,
        settings={"ring_size": 10, "durable": True, "redelivery_multiplier": 1.0, "evict": "head"},
        own={}, own_since_ms={},
        paused=(), pulled=True, size_bytes=0, oldest_ms=0, consumers=(),
    )  # fmt: skip


class FixedStatus:
    """A status that does not change."""

    def __init__(self, queues: Sequence[QueueStatus], workers: Sequence[WorkerStatus]) -> None:
        self.is_truncated = False
        self.silent_ms = 0
        """For how long the brokers have not answered."""
        self._queues, self._workers = list(queues), list(workers)

    @property
    def heard_ms(self) -> int:
        return now_ms() - self.silent_ms

    def queue(self, name: str) -> QueueStatus | None:
        return next((each for each in self._queues if each.queue == name), None)

    def queues(self) -> list[QueueStatus]:
        return self._queues

    def workers(self) -> list[WorkerStatus]:
        return self._workers


class FixedBackend(Backend):
    """Connected to nothing."""

    def __init__(self, queues: Sequence[QueueStatus]) -> None:
        super().__init__(WorkerConfig(), QueuesConfig())
        self.applied = QueuesConfig()
        """What was applied last."""
        self.status = FixedStatus(queues, [worker_row()])
        self.fixed = self._board = Board(self.status)
        self.fake: AsyncMock = create_autospec(Admin, instance=True)
        self.fake.queue.side_effect = queue_details
        self.fake.configuration.return_value = {}
        self.fake.history.return_value = []
        self.fake.browse_page.return_value = MessagePage(messages=(), after=None)

    @property
    def board(self) -> Board:
        return self.fixed

    async def admin(self) -> Admin:
        return self.fake

    async def in_use(self) -> InUse:
        return InUse(self.applied, self.applied)

    async def close(self) -> None:
        """There is nothing to close."""


@dataclass
class Console:
    """A console and a browser that looks at it."""

    client: TestClient[web.Request, web.Application]
    backend: FixedBackend
    form_token: str = ""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.client.port}"

    async def get(self, path: str, **headers: str) -> ClientResponse:
        return await self.client.get(f"/console{path}", headers=headers, allow_redirects=False)

    async def text(self, path: str, **headers: str) -> str:
        answer = await self.get(path, **headers)
        text = await answer.text()
        assert answer.status == 200, text
        return text

    async def post(
        self, path: str, fields: dict[str, str], origin: str | None = None
    ) -> ClientResponse:
        sent = self.origin if origin is None else origin
        return await self.client.post(
            f"/console{path}", data={"form-token": self.form_token} | fields,
            headers={"Origin": sent} if sent else {}, allow_redirects=False,
        )  # fmt: skip

    async def log_in(self, token: str = TOKEN) -> ClientResponse:
        answer = await self.post("/login", {"token": token})
        found = re.search(r'name="form-token" value="([^"]+)"', await self.text("/"))
        self.form_token = found[1] if found else ""
        return answer


@contextmanager
def console_process(app: Application) -> Iterator[str]:
    """`ringfaust console` in a process of its own; its address."""
    port = free_port()
    arguments = command(
        "console", "--config", app.config_dir, "--port", str(port), "--allow-changes"
    )
    process = subprocess.Popen(
        arguments, env=environment() | {"RINGFAUST_CONSOLE_TOKEN": TOKEN}, text=True,
        stdout=subprocess.PIPE, cwd=app.folder,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert f"http://127.0.0.1:{port}/console/" in said
        assert TOKEN not in said
        yield f"http://127.0.0.1:{port}/console"
        process.terminate()
        assert process.wait(_STOP_S) == 0
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def console_of(
    queues: Sequence[QueueStatus], *, token: str = TOKEN, bind: str = "127.0.0.1",
    read_token: str = "", **settings: Any,
) -> AsyncIterator[Console]:  # fmt: skip
    """A console that has looked once. `settings`: of `web` in worker.yaml."""
    backend = FixedBackend(queues)
    await backend.board.look_now()
    app = web.Application()
    web_config = WebConfig.model_validate(settings)
    attach_console(app, backend, console_options(web_config, bind, token, read_token))
    async with TestClient(TestServer(app)) as client:
        yield Console(client, backend)
