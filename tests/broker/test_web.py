"""The pages of a real worker: when it is ready, and what its metrics show."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from ringfaust.client import QueueCounts, StatusReader
from ringfaust.testing.broker import free_port
from tests.broker.clients import client_of, some
from tests.chaos.harness import Application, until

pytestmark = pytest.mark.kafka


QUEUES = {"q": {"ring_size": 2}}


async def test_a_worker_becomes_ready_and_shows_an_eviction(app: Application) -> None:
    port = free_port()
    settings = app.worker_config.model_dump(
        mode="json", include={"application", "bootstrap_servers", "partitions"}
    )
    app.write("worker.yaml", settings | {"web": {"enabled": True, "port": port}})
    worker = app.new_worker()
    answers: list[int] = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as web:

        async def get(path: str) -> tuple[int, str]:
            try:
                async with web.get(path) as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectionError:
                return 0, ""

        async def is_ready() -> bool:
            answers.append((await get("/readyz"))[0])
            return answers[-1] == 200

        while not await is_ready():
            assert worker.alive, worker.log_text()
        assert 503 in answers  # it answered while it was recovering
        assert set(answers) <= {0, 503, 200}
        assert await get("/healthz") == (200, "ok\n")

        async with client_of(app) as client:
            await client.send(app.inputs[0], some("a", 5), "q")
            await client.until_ready("q", "a3", "a4")
            await client.say("purge", "q")
        _, metrics = await get("/metrics")
        assert (
            'ringfaust_partition_evicted_messages_total{partition="0",reason="overflow"} 3.0'
            in metrics
        )
        _, detailed = await get("/metrics/detailed?family=evicted&queue=q")
        line = 'ringfaust_queue_evicted_messages_total{queue="q",reason="purge"} 2.0'
        assert line in detailed
    async with StatusReader(
        bootstrap_servers=app.servers, application=app.worker_config.application
    ) as status:
        while (row := status.queue("q")) is None or row.counts.evicted < 5:
            await status.changed(status.revision)
        assert row.counts == QueueCounts(added=5, evicted=5)
        assert (row.ring_size, row.partition) == (2, 0)
        assert row.evicted_by == {"overflow": 3, "purge": 2}
        (known,) = status.workers()
        assert known.partitions == (0,)
        assert status.worker_of(0, known.time_ms) == known
        while not status.workers()[0].is_ready:
            await status.changed(status.revision)
        await until(lambda: "INFO ready: partition 0" in worker.log_text(), 60, "it is logged")
        stopping = asyncio.ensure_future(asyncio.to_thread(worker.stop))
        while status.workers():  # it takes its row back
            await status.changed(status.revision)
        assert await stopping == 0
    await until(lambda: "operator: purge of 'q'" in worker.log_text(), 10, "the log tells")
    log = worker.log_text()
    assert log.index("INFO ringfaust ") < log.index("INFO ready: partition 0")
    assert "WARNING" not in log
    assert "NotEnoughReplicas" not in log
