"""What a worker finds on its disk when it starts: damage, or another worker."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.clients import Client, all_came_once, client_of, some
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka

KEPT = 50
QUEUES = {"q": {"ring_size": KEPT}}


async def fill(client: Client, into: str, letter: str) -> list[str]:
    ids = some(letter, 2 * KEPT)
    await client.send(into, ids, "q")
    await client.until_ready("q", *ids[KEPT:])
    return ids[KEPT:]


async def test_a_directory_in_use_is_refused_at_once_and_a_damaged_database_is_rebuilt(
    app: Application,
) -> None:
    """Which damage is noticed, tests/worker/store/test_store.py says."""
    worker = app.new_worker()
    async with client_of(app) as client:
        held = await fill(client, app.inputs[0], "a")
        again = ("worker", "--config", app.config_dir, "--data-dir", worker.data_dir)
        refused = await asyncio.to_thread(app.run, *again)
        assert refused.returncode == 2
        assert f"in use by another worker, with the process id {worker.pid}" in refused.stderr
        assert worker.alive

        worker.kill()
        (worker.data_dir / "partition-0" / "CURRENT").unlink()
        worker.start()
        await client.until_ready("q", *held)
        assert worker.log_text().count("was set aside as partition-0.set-aside-") == 1
        await fill(client, app.inputs[0], "b")
        assert "Traceback" not in worker.log_text()
        await all_came_once(app, client, "q")
