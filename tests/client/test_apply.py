"""A configuration is applied to all partitions, or to none (R128), on a broker in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringfaust.client import Admin, BadArgument, RingProducer
from ringfaust.client.configuring import NotApplied
from ringfaust.protocol.revisions import KEPT
from ringfaust.testing import MemoryBroker

ROUTES = [{"topic": "orders", "queue": "orders", "hop": "always"}]


def content(**queues: Any) -> dict[str, Any]:
    return {"routes": ROUTES, "queues": queues, "addresses": {}, "settings": {}}


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(content(orders={"ring_size": 3}), partitions=3)


async def test_every_partition_uses_it_and_the_history_has_what_was_before(
    broker: MemoryBroker,
) -> None:
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            before = await admin.configuration()
            assert {each.revision for each in before.values()} == {0}
            applied = await admin.apply(content(orders={"ring_size": 1}), who="ann", text="less")
            assert applied == (1, (0, 1, 2), ())
            assert (await admin.queue("orders")).settings["ring_size"] == 1
            used = await admin.configuration()
            assert {(each.revision, each.who, each.text) for each in used.values()} == {
                (1, "ann", "less")
            }
            first, second = await admin.history()
            assert (first.revision, first.document) == (0, before[0].document)
            assert (second.revision, second.document) == (1, used[0].document)
            assert second.applied_ms > 0


async def test_who_was_not_told_of_a_newer_revision_is_refused(broker: MemoryBroker) -> None:
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.apply(content(orders={"ring_size": 1}), after=0)
            with pytest.raises(NotApplied, match="revision 1 is newer than revision 0"):
                await admin.apply(content(orders={"ring_size": 2}), after=0)
            assert [each.revision for each in await admin.history()] == [0, 1]


async def test_a_change_of_routes_is_refused_as_a_whole_while_workers_run(
    broker: MemoryBroker,
) -> None:
    more = {**content(orders={"ring_size": 1}), "routes": [*ROUTES, {**ROUTES[0], "topic": "new"}]}
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            with pytest.raises(NotApplied, match="the routes of new differ"):
                await admin.apply(more)
            assert await admin.history() == []
            assert (await admin.queue("orders")).settings["ring_size"] == 3


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"nonsense": {}}, "nonsense"),
        ({**content(), "queues": {"q": 3}}, "queues"),
        (content(**{f"q{number}": {"ring_size": 1} for number in range(20_000)}), "limit is"),
    ],
)
async def test_what_is_no_configuration_is_refused_before_it_is_written(
    broker: MemoryBroker, wrong: dict[str, Any], says: str
) -> None:
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            with pytest.raises(BadArgument, match=says):
                await admin.apply({"routes": ROUTES, **wrong})
            assert await admin.history() == []


async def test_the_oldest_revisions_are_forgotten_but_for_the_first(broker: MemoryBroker) -> None:
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for number in range(KEPT + 2):
                await admin.apply(content(orders={"ring_size": number + 1}))
            found = [each.revision for each in await admin.history()]
            assert found == [0, *range(3, KEPT + 3)]


async def test_a_large_configuration_is_accepted(broker: MemoryBroker) -> None:
    many = content(orders={}, **{f"q{number}": {"ring_size": 1} for number in range(6_000)})
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert (await admin.apply(many)).revision == 1
            servers = broker.bootstrap_servers
            async with RingProducer(bootstrap_servers=servers) as producer:
                await producer.send("orders", "x")
            assert broker.counts("orders").added == 1
            used = await asyncio.wait_for(admin.configuration(), 10)
            assert len(used[0].document["queues"]) == 6_001
