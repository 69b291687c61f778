"""Imported rings on a real worker and broker: they keep the newest, and evict the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ringfaust.importers.artemis import import_artemis
from ringfaust.importers.write import write
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import balanced, client_of, some
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka
FIXTURES = Path(__file__).with_name("fixtures")


async def test_imported_rings_keep_the_newest(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A declared queue with a ring of 5, and one that Artemis would create, with a ring of 3."""
    write(import_artemis(FIXTURES / "ring-both.xml"), tmp_path / "to")
    queues = yaml.safe_load((tmp_path / "to" / "queues.yaml").read_text())
    catch_all = next(route for route in queues["routes"] if route["topic"] == "messages")
    catch_all["topic"] = topic = f"messages-{tmp_path.name}"  # other tests create `messages`
    app = Application(tmp_path / "app", broker.bootstrap_servers, queues, partitions=1)
    app.create_topics()
    try:
        app.new_worker()
        async with client_of(app) as client:
            await client.send("myRing", some("m", 8), "any")
            await client.send(topic, some("a", 5), "any", ringfaust_queue="ring.a")
            await client.until_ready("myRing", *some("m", 8)[3:])
            await client.until_ready("ring.a", *some("a", 5)[2:])
            # What is being delivered is outside the ring.
            await client.say("attach", "ring.a", consumer="c", credit=2)
            await client.send(topic, ["b0", "b1", "b2", "b3"], "any", ringfaust_queue="ring.a")
            await client.until_ready("ring.a", "b1", "b2", "b3")
            counts = await client.counts("ring.a")
            assert (counts["delivering"], counts["evicted"]) == (2, 4)
            await balanced(app, client, "myRing", "ring.a")
    finally:
        app.end()
