"""A configuration is applied to all partitions, or to none (R128), on a broker in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringfaust.client import Admin, BadArgument, RingProducer, configuring
from ringfaust.client.configuring import NotApplied
from ringfaust.protocol.partitioner import partition_of
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


async def test_routes_take_effect_and_a_topic_that_comes_back_is_read_on(
    broker: MemoryBroker,
) -> None:
    queues = content(orders={}, **{"late.*": {}})
    new = {"topic": "new", "queue": "late.{key}"}
    servers = broker.bootstrap_servers
    with broker:
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.apply({**queues, "routes": [*ROUTES, new]})
            async with RingProducer(bootstrap_servers=servers) as producer:
                for topic in ("orders", "new"):
                    await producer.send(topic, "1", key="a")
                assert broker.counts("orders").added == broker.counts("late.a").added == 1
                await admin.apply({**queues, "routes": [new]})
                for topic in ("orders", "new"):
                    await producer.send(topic, "2", key="a")
                assert broker.counts("orders").added == 1
                assert broker.counts("late.a").added == 2
                await admin.apply({**queues, "routes": ROUTES})
                assert broker.counts("orders").added == 2, "nothing is lost or doubled"


async def test_routes_that_would_move_queues_with_messages_are_refused_with_a_list(
    broker: MemoryBroker,
) -> None:
    """R113. Empty queues may move."""
    key = next(key for key in "abc" if partition_of(key, 3) != partition_of(f"late.{key}", 3))
    queues = {**content(**{"late.*": {}}), "routes": [{"topic": "keyed", "queue": "late.{key}"}]}
    named = {"topic": "named", "queue": "late.{header:x}"}
    servers = broker.bootstrap_servers
    with broker:
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.apply(queues)
            async with RingProducer(bootstrap_servers=servers) as producer:
                await producer.send("keyed", "x", key=key)
            with pytest.raises(NotApplied) as refused:
                await admin.apply({**queues, "routes": [named]})
            home = partition_of(f"late.{key}", 3)
            assert f"'late.{key}' (1 messages, to partition {home})" in str(refused.value)
            assert [each.revision for each in await admin.history()] == [0, 1]
            await admin.purge(f"late.{key}")
            assert (await admin.apply({**queues, "routes": [named]})).revision == 2


async def test_a_topic_that_would_begin_to_take_the_hop_is_refused_while_workers_run(
    broker: MemoryBroker,
) -> None:
    queues = content(orders={})
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            new = {"topic": "new", "queue": "orders", "hop": "always"}
            await admin.apply({**queues, "routes": [new]})
            with pytest.raises(NotApplied, match="new would take the hop from now on, or take it"):
                await admin.apply({**queues, "routes": [{**new, "hop": "never"}]})
            other = {"topic": "other", "queue": "orders", "hop": "always"}
            await admin.apply({**queues, "routes": [other]})
            with pytest.raises(NotApplied, match="new would take the hop from now on, or take it"):
                await admin.apply({**queues, "routes": [other, {**new, "hop": "never"}]})
            assert [each.revision for each in await admin.history()] == [0, 1, 2]


async def test_the_hop_that_a_topic_was_given_while_no_worker_ran_counts(
    broker: MemoryBroker,
) -> None:
    """It had another one in an earlier revision, and with that it is refused again."""
    queues = content(orders={})
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            new = {"topic": "new", "queue": "orders", "hop": "always"}
            await admin.apply({**queues, "routes": [new]})
            direct = {**new, "hop": "never"}
            await admin.apply({**queues, "routes": [direct]}, is_stopped=True)
            more = content(orders={}, others={})
            assert (await admin.apply({**more, "routes": [direct]})).revision == 3
            with pytest.raises(NotApplied, match="new would take the hop from now on, or take it"):
                await admin.apply({**more, "routes": [new]})


async def test_a_topic_that_no_worker_could_read_is_refused(broker: MemoryBroker) -> None:
    """Else every worker would stop at it (R113), and none could start again."""
    broker.topics.create("two", 2)
    queues = content(orders={})
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            two = {"topic": "two", "queue": "orders", "hop": "never"}
            with pytest.raises(NotApplied, match="two has 2 partitions, and this application 3"):
                await admin.apply({**queues, "routes": [two]})
            assert await admin.history() == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"nonsense": {}}, "nonsense"),
        ({"routes": 3}, "routes"),
        ({"routes": [{}]}, "routes"),
        ({"routes": [{"topic": "t", "queue": 3}]}, "routes"),
        ({**content(), "queues": {"q": 3}}, "queues"),
        ({**content(), "queues": {"q": {"ring_sise": 3}}}, "ring_sise"),
        ({**content(), "queues": {"q": {"ring_size": -7}}}, "ring_size"),
        ({"routes": [{"topic": "a b", "queue": "q"}]}, "routes.0.topic: 'a b' is not a valid"),
        ({"routes": [{"topic": "t", "queue": "{kye}"}]}, "did you mean '{key}'"),
        ({"routes": [{"topic": "t", "queue": "{key"}]}, "routes.0.queue: .* unmatched brace"),
        ({"routes": [{"topic": "ringfaust.dead", "queue": "q"}]}, "this application's own topics"),
        (
            {
                "routes": [
                    {"topic": "a", "queue": "x.{key}"},
                    {"topic": "b", "queue": "x.fixed", "hop": "always"},
                ]
            },
            "routes.1.hop: .* can name the same queue",
        ),
        (content(**{f"q{number}": {"ring_size": 1} for number in range(20_000)}), "limit is"),
        (content(**{"a*.b": {}}), r"queues.a\*.b: 'a\*' mixes a wildcard with text"),
        (content(**{f"q{number}.*": {} for number in range(1_001)}), "1,001 names with"),
        ({"routes": [*ROUTES, *ROUTES]}, "has two routes"),
        (
            {**content(orders={}), "routes": [{"topic": "t", "queue": "odrers"}]},
            "is not declared in .* 'orders'",
        ),
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


async def test_what_a_worker_refuses_is_taken_back(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R128. It stayed in the log, so a worker that was started again could not begin."""
    monkeypatch.setattr(configuring, "document_faults", lambda *_: [])  # an older worker's view
    many = content(orders={}, **{f"q{number}.*": {} for number in range(1_001)})
    with broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.apply(content(orders={"ring_size": 3}))
            with pytest.raises(NotApplied, match=r"refuses revision 2: .* Revision 3 has what was"):
                await admin.apply(many)
            found = await admin.history()
            assert [each.revision for each in found] == [0, 1, 2, 3]
            assert found[3].document == found[1].document
            used = await admin.configuration()
            assert {each.revision for each in used.values()} == {3}


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
