"""The feature level is raised in all partitions (R129), on a broker in memory."""

from __future__ import annotations

import pytest

from ringfaust.client import Admin, Refused, RingProducer
from ringfaust.core import levels
from ringfaust.testing import MemoryBroker

CONTENT = {"routes": [{"topic": "orders", "queue": "orders"}], "queues": {"orders": {}}}


async def test_every_partition_takes_it_up_and_repeats_change_nothing() -> None:
    with MemoryBroker(CONTENT, partitions=3) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert await admin.feature_level() == (1, "", 0)
            assert await admin.raise_level(2, who="ann") == (2, (0, 1, 2), ())
            first = await admin.feature_level()
            assert (first.level, first.who) == (2, "ann")
            for level in (2, 1):
                assert (await admin.raise_level(level, who="bob")).partitions == (0, 1, 2)
            assert await admin.feature_level() == first
            servers = broker.bootstrap_servers
            async with RingProducer(bootstrap_servers=servers) as producer:
                await producer.send("orders", "x")
            assert broker.counts("orders").added == 1


async def test_from_level_2_on_a_queue_says_since_when_its_settings_are_set_live() -> None:
    with MemoryBroker(CONTENT, partitions=1) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.configure("orders", {"ring_size": 5})
            before = await admin.queue("orders")
            assert (before.own, before.own_since_ms) == ({"ring_size": 5}, {})

            await admin.raise_level(2)
            await admin.configure("orders", {"dedup_window": 60})
            first_ms = (await admin.queue("orders")).own_since_ms
            assert first_ms.keys() == {"dedup_window"}, "when the other was set is not known"

            broker.clock.advance(5)
            await admin.configure("orders", {"ring_size": 6})
            both_ms = (await admin.queue("orders")).own_since_ms
            assert both_ms["dedup_window"] == first_ms["dedup_window"]
            assert both_ms["ring_size"] >= both_ms["dedup_window"] + 5_000

            await admin.configure("orders", {"ring_size": None})
            assert (await admin.queue("orders")).own_since_ms == first_ms

            await admin.create_queue("new", {"ring_size": 1})
            assert (await admin.queue("new")).own_since_ms.keys() == {"ring_size"}


async def test_a_level_that_no_worker_supports_is_refused() -> None:
    with MemoryBroker(CONTENT, partitions=1) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            with pytest.raises(Refused, match="this worker supports levels 1 to 2"):
                await admin.raise_level(levels.NEWEST + 1)
            assert (await admin.feature_level()).level == 1, "else no worker could start any more"
