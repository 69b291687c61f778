"""A store is brought up to date by its changelog, or rebuilt where that would not be safe."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rocksdict import Cache

from ringfaust.kafka.transactions import Committer
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.worker.changelog import StateLost, replay
from ringfaust.worker.store import RocksStore
from tests.broker.test_commit import new_topics

pytestmark = pytest.mark.kafka

DAY_MS = 24 * 3600 * 1000


async def written(broker: EmbeddedBroker, topic: str, batches: int) -> None:
    """So many transactions of two rows each: each removes the row of the one before."""
    client = {"bootstrap_servers": broker.bootstrap_servers}
    committer = Committer(topic, 0, {Role.CHANGELOG: topic}, client, topic)
    await committer.start()
    for number in range(batches):
        writes = [(b"row-%d" % number, b"x"), (b"row-%d" % (number - 1), None)]
        await committer.commit({}, writes, {})
    await committer.stop()


@pytest.fixture
def store(tmp_path: Path) -> RocksStore:
    return RocksStore(tmp_path / "store", Cache(1 << 20))


def rows(store: RocksStore) -> dict[bytes, bytes]:
    return {key: value for key, value in store.items_from(b"") if key.startswith(b"row")}


async def new_changelog(broker: EmbeddedBroker, batches: int) -> str:
    name = (await new_topics(broker, changelog=1 << 20))["changelog"]
    await written(broker, name, batches)
    return name


async def test_a_new_store_gets_all_and_an_old_one_the_rest(
    broker: EmbeddedBroker, store: RocksStore
) -> None:
    client = {"bootstrap_servers": broker.bootstrap_servers}
    topic = await new_changelog(broker, 5)
    assert await replay(store, topic, 0, client, 7 * DAY_MS)
    assert rows(store) == {b"row-4": b"x"}
    assert store.applied[0] == 15  # the last transaction's marker too
    await written(broker, topic, 9)
    assert await replay(store, topic, 0, client, 7 * DAY_MS)
    assert rows(store) == {b"row-8": b"x"}


async def test_a_store_that_may_have_missed_tombstones_is_not_used(
    broker: EmbeddedBroker, store: RocksStore
) -> None:
    client = {"bootstrap_servers": broker.bootstrap_servers}
    topic = await new_changelog(broker, 5)
    week_ago = time.time_ns() // 1_000_000 - 8 * DAY_MS
    store.apply([(b"row-0", b"x")], 3, week_ago)
    assert not await replay(store, topic, 0, client, 7 * DAY_MS)
    store.apply([(b"row-4", b"x"), (b"row-0", None)], 14, week_ago)  # nothing came after it
    assert await replay(store, topic, 0, client, 7 * DAY_MS)


async def test_a_store_that_is_ahead_is_left_as_it_is(
    broker: EmbeddedBroker, store: RocksStore
) -> None:
    client = {"bootstrap_servers": broker.bootstrap_servers}
    topic = await new_changelog(broker, 1)
    store.apply([(b"row-7", b"x")], 50, 1)
    with pytest.raises(StateLost, match="delete the folder"):
        await replay(store, topic, 0, client, 7 * DAY_MS)
    assert rows(store) == {b"row-7": b"x"}
