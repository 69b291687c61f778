"""CloudEvents of a real worker, on the evicted and the dead topic. The accounts do not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import all_came_once, client_of, reader_of, some
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka


async def records(app: Application, role: str, count: int) -> list[dict[str, str]]:
    """The headers of the first records of a topic."""
    found: list[dict[str, str]] = []
    async with reader_of(app, role) as consumer:
        while len(found) < count:
            record = await consumer.getone()
            found.append({name: value.decode() for name, value in record.headers})
    return found


async def test_evicted_and_dead_records_are_cloud_events(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    direct, hop = f"in-{tmp_path.name}", f"hop-{tmp_path.name}"
    queues = {
        "routes": [
            {"topic": direct, "queue": "q", "hop": "never"},
            {"topic": hop, "queue": "{header:to}", "hop": "always"},
        ],
        "queues": {"q": {"ring_size": 2}},
    }
    with Application(
        tmp_path / "app", broker.bootstrap_servers, queues, partitions=1, cloud_events=True
    ) as app:
        app.new_worker()
        async with client_of(app) as client:
            await client.send(direct, some("a", 3), "q")
            await client.until_ready("q", "a1", "a2")
            await client._producer.send_and_wait(hop, b"goes nowhere")  # its route's header lacks
            (evicted,) = await records(app, "evicted", 1)
            (dead,) = await records(app, "dead", 1)
            await all_came_once(app, client, "q")
    source = f"/ringfaust/{app.worker_config.application}"
    assert evicted["ce_type"] == "ringfaust.evicted"
    assert (evicted["ce_id"], evicted["ce_source"]) == (f"{direct}/0/0/1", f"{source}/q")
    assert (dead["ce_type"], dead["ce_source"]) == ("ringfaust.undecodable", source)
    assert evicted["ce_subject"] == "a0" and dead["ce_id"] == f"{hop}/0/0"
