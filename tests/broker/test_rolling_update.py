"""What the chart does, played by processes: the job of `helm upgrade`, then a rolling update."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import yaml

from tests.broker.clients import all_came_once, client_of, run, some
from tests.chaos.harness import Application, Worker, until

pytestmark = pytest.mark.kafka

QUEUES = {"q": {"ring_size": -1}}


def is_ready(worker: Worker) -> bool:
    """Whether its readiness probe succeeds since its start."""
    return " INFO ready: " in worker.log_text().rpartition("--- start\n")[2]


async def test_a_release_is_applied_and_rolled_out_past_a_spare_worker_and_loses_nothing(
    app: Application,
) -> None:
    """R124, R128: both files change at once. With one partition, one of two workers is spare,
    whichever has just started."""
    workers = [app.new_worker(), app.new_worker()]
    for worker in workers:
        await until(partial(is_ready, worker), 60, "it is ready")
    spare = [each for each in workers if "ready: no partition is assigned" in each.log_text()]
    assert len(spare) == 1
    names = ("worker.yaml", "queues.yaml")
    before = [yaml.safe_load((app.config_dir / name).read_text()) for name in names]
    after = [
        before[0] | {"failover_after_ms": 5_000},
        before[1] | {"queues": QUEUES | {"new": {"ring_size": 1}}},
    ]
    sent: list[str] = []
    async with client_of(app) as client:

        async def release(number: int, files: list[dict[str, Any]]) -> None:
            for name, content in zip(names, files, strict=True):
                app.write(name, content)
            text = f"revision {number + 1} of the release"
            job = ("apply", "--yes", "--by", "helm shop", "--message", text)
            assert f"revision {number} is in effect in partition 0" in await run(app, *job)
            for worker in reversed(workers):  # as a StatefulSet does it
                more = some(f"{number}-{worker.number}-", 50)
                await client.send(app.inputs[0], more, "q")
                sent.extend(more)
                assert await app.stop(worker) == []
                worker.start()
                await until(partial(is_ready, worker), 60, "it is ready")
                await client.until_ready("q", *sent)

        await release(1, after)
        await client.send(app.inputs[0], some("n", 3), "new")
        await client.until_ready("new", "n2")
        await release(2, before)  # `helm rollback`
        await client.send(app.inputs[0], some("m", 2), "new")
        await client.until_ready("new", "n2", "m0", "m1")
        await all_came_once(app, client, "q", "new")
