"""A worker gives signs of life where the Kafka client runs, whatever its own loop does (R126)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.protocol.status import Sign
from ringfaust.worker import app as worker_app

NOBODY = "127.0.0.1:1"
FEW = 3


class Signs:
    """A log in memory that says when it has got a few signs."""

    def __init__(self, *_: Any) -> None:
        self.count = 0
        self.has_few = threading.Event()

    async def start(self) -> None:
        pass

    async def write(self, sign: Sign) -> None:
        self.count += 1
        if self.count >= FEW:
            self.has_few.set()

    async def read(self) -> AsyncIterator[Sign]:
        await asyncio.Event().wait()
        yield Sign("")

    async def stop(self) -> None:
        pass


async def test_a_worker_whose_loop_is_blocked_gives_signs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One step of a partition may take longer than `failover_after_ms`."""
    signs = Signs()
    monkeypatch.setattr(worker_app, "SignTopic", lambda *_: signs)
    worker = WorkerConfig(
        bootstrap_servers=NOBODY, data_dir=tmp_path, clock="log", failover_after_ms=1_000
    )
    queues = QueuesConfig()
    app = worker_app.create_app(worker, InUse(queues, queues))

    has_ended = threading.Event()

    async def beside_kafka() -> None:
        try:
            await asyncio.gather(*[each(frozenset) for each in app.background])
        finally:
            has_ended.set()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    assert app.beside is not None
    beside = asyncio.ensure_future(app.beside())
    in_thread = asyncio.run_coroutine_threadsafe(beside_kafka(), loop)
    try:
        await asyncio.sleep(0)
        assert signs.has_few.wait(10), "this blocks the loop of the app"
    finally:
        in_thread.cancel()
        beside.cancel()
        await asyncio.wait({beside})
        assert await asyncio.to_thread(has_ended.wait, 30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
