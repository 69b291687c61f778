"""What the chart does, played by processes: a rolling update, and the job of `helm upgrade`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import all_came_once, application, client_of, run, some
from tests.chaos.harness import Application, Worker, until

pytestmark = pytest.mark.kafka

QUEUES = {"q": {"ring_size": -1}}


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    with application(broker, tmp_path, QUEUES) as app:
        yield app


def is_ready(worker: Worker) -> bool:
    """Whether its readiness probe succeeds since its start."""
    return " INFO ready: " in worker.log_text().rpartition("--- start\n")[2]


async def test_a_rolling_update_goes_on_past_a_spare_worker_and_loses_nothing(
    app: Application,
) -> None:
    """R124: with one partition, one of two workers is spare, whichever has just started."""
    workers = [app.new_worker(), app.new_worker()]
    for worker in workers:
        await until(partial(is_ready, worker), 60, "it is ready")
    spare = [each for each in workers if "ready: no partition is assigned" in each.log_text()]
    assert len(spare) == 1
    sent: list[str] = []
    async with client_of(app) as client:
        settings = yaml.safe_load((app.config_dir / "worker.yaml").read_text())
        app.write("worker.yaml", settings | {"failover_after_ms": 5_000})
        for number, worker in enumerate(reversed(workers)):  # as a StatefulSet does it
            more = some(f"{'ab'[number]}", 50)
            await client.send(app.inputs[0], more, "q")
            sent += more
            assert await app.stop(worker) == []
            worker.start()
            await until(partial(is_ready, worker), 60, "it is ready")
            await client.until_ready("q", *sent)
        queues = yaml.safe_load((app.config_dir / "queues.yaml").read_text())
        app.write("queues.yaml", queues | {"queues": QUEUES | {"new": {"ring_size": 1}}})
        job = ("apply", "--yes", "--by", "helm shop", "--message", "revision 2 of the release")
        assert "revision 1 is in effect in partition 0" in await run(app, *job)
        await client.send(app.inputs[0], some("n", 3), "new")
        await client.until_ready("new", "n2")
        await all_came_once(app, client, "q", "new")
