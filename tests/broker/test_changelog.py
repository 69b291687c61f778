"""The changelog brings a store up to date, or the store is rebuilt if that would not be safe."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from rocksdict import Cache

from ringfaust.kafka.transactions import TransactionalProducer
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.worker.clock import SystemClock
from ringfaust.worker.interfaces import StateLost
from ringfaust.worker.store.changelog import OWN_PACE, changelog_consumer, replay
from ringfaust.worker.store.rocks import RocksStore
from tests.broker.test_commit import new_topics

pytestmark = pytest.mark.kafka

DAY_MS = 24 * 3600 * 1000


async def commit_batches(broker: EmbeddedBroker, topic: str, batches: int) -> None:
    """Commit transactions of two rows each: each deletes the row of the previous one.

    A commit returns before its marker is written. So a second producer starts, as that of the
    partition's next owner does: it waits until the last transaction is complete.
    """
    client = {"bootstrap_servers": broker.bootstrap_servers}
    producer = TransactionalProducer(topic, 0, {Role.CHANGELOG: topic}, client, topic)
    await producer.start()
    for number in range(batches):
        writes = [(b"row-%d" % number, b"x"), (b"row-%d" % (number - 1), None)]
        await producer.commit({}, writes, {})
    await producer.stop()
    successor = TransactionalProducer(topic, 0, {Role.CHANGELOG: topic}, client, topic)
    await successor.start()
    await successor.stop()


async def replay_now(store: RocksStore, topic: str, broker: EmbeddedBroker) -> bool:
    client = {"bootstrap_servers": broker.bootstrap_servers}
    context: Any = SimpleNamespace(
        clock=SystemClock(), tombstone_ms=7 * DAY_MS, replaying={},
        open_changelog=lambda: changelog_consumer(client),
    )  # fmt: skip
    return await replay(store, TP(topic, 0), context, OWN_PACE)


@pytest.fixture
def store(tmp_path: Path) -> RocksStore:
    return RocksStore(tmp_path / "store", Cache(1 << 20))


def rows(store: RocksStore) -> dict[bytes, bytes]:
    return {key: value for key, value in store.items_from(b"") if key.startswith(b"row")}


async def new_changelog(broker: EmbeddedBroker, batches: int) -> str:
    name = (await new_topics(broker, changelog=1 << 20))["changelog"]
    await commit_batches(broker, name, batches)
    return name


async def test_a_new_store_gets_everything_and_an_old_one_the_rest(
    broker: EmbeddedBroker, store: RocksStore
) -> None:
    topic = await new_changelog(broker, 5)
    assert await replay_now(store, topic, broker)
    assert rows(store) == {b"row-4": b"x"}
    assert store.applied[0] == 15  # including the marker of the last transaction
    await commit_batches(broker, topic, 9)
    assert await replay_now(store, topic, broker)
    assert rows(store) == {b"row-8": b"x"}


async def test_a_store_that_may_have_missed_tombstones_is_not_used(
    broker: EmbeddedBroker, store: RocksStore
) -> None:
    topic = await new_changelog(broker, 5)
    week_ago = time.time_ns() // 1_000_000 - 8 * DAY_MS
    store.apply([(b"row-0", b"x")], 3, week_ago)
    assert not await replay_now(store, topic, broker)
    store.apply([(b"row-4", b"x"), (b"row-0", None)], 14, week_ago)  # nothing follows it
    assert await replay_now(store, topic, broker)


async def test_a_store_ahead_of_its_changelog_is_an_error_and_stays_unchanged(
    broker: EmbeddedBroker, store: RocksStore
) -> None:
    topic = await new_changelog(broker, 1)
    store.apply([(b"row-7", b"x")], 50, 1)
    with pytest.raises(StateLost, match="delete the directory"):
        await replay_now(store, topic, broker)
    assert rows(store) == {b"row-7": b"x"}
