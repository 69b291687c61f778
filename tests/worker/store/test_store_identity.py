"""R111: state that belongs elsewhere is refused, or set aside and rebuilt. It is never served."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from rocksdict import Cache

from ringfaust.kafka.topic_ids import TopicIds
from ringfaust.protocol.stored_rows import (
    INPUTS_KEY,
    OWNER_KEY,
    POSITIONS_KEY,
    InputState,
    JobOwner,
    read_owner,
    write_inputs,
    write_owner,
    write_positions,
)
from ringfaust.worker.interfaces import StateLost
from ringfaust.worker.store.changelog import OwnedByJob, open_store
from ringfaust.worker.store.identity import IDENTITY_KEY, ForeignState, StoreIdentity, read_identity
from ringfaust.worker.store.rocks import RocksStore
from tests.sim.broker import Broker
from tests.sim.kafka import VirtualConsumer

CHANGELOG = TP("changelog", 0)
NOW_MS = 1_000


def context_of(broker: Broker, application: str = "mine") -> Any:
    """What `open_store` needs of a worker's context."""

    async def ids(names: Collection[str]) -> TopicIds:
        return TopicIds(broker.cluster, {name: broker.topic_id(name) for name in names})

    return SimpleNamespace(
        application=application,
        topic_ids=ids,
        open_store=lambda path: RocksStore(path, Cache(1 << 20)),
        open_changelog=lambda: VirtualConsumer(broker),
        clock=SimpleNamespace(wall_ms=lambda: NOW_MS),
        replaying={},
        tombstone_ms=1_000_000,
    )


def broker_with(*rows: tuple[bytes, bytes], application: str = "mine") -> Broker:
    """A broker whose changelog has these rows, and the positions of the application."""
    broker = Broker(NOW_MS)
    positions = write_positions({f"{application}.control": len(rows)})
    written = [*rows, (POSITIONS_KEY, positions)]
    broker.write(CHANGELOG, [(key, value, []) for key, value in written])
    return broker


async def opened(path: Path, broker: Broker, application: str = "mine") -> dict[bytes, bytes]:
    """The rows of the store, once it is open."""
    store = await open_store(path, CHANGELOG, context_of(broker, application))
    rows = dict(store.items_from(b"a"))
    store.close()
    return rows


def aside(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".set-aside-" in path.name]


async def test_another_applications_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "partition-0"
    await opened(path, broker_with((b"row", b"theirs")), "other")
    with pytest.raises(ForeignState, match=r"application 'other', but .* application 'mine'"):
        await opened(path, broker_with((b"row", b"mine")))
    assert await opened(path, broker_with((b"row", b"theirs")), "other") == {b"row": b"theirs"}


async def test_state_of_another_cluster_is_set_aside_and_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "partition-0"
    await opened(path, broker_with((b"row", b"old")))
    rebuilt = broker_with((b"row", b"new"))
    rebuilt.cluster = "rebuilt"
    assert await opened(path, rebuilt) == {b"row": b"new"}
    assert "belongs to cluster sim, and this is cluster rebuilt" in caplog.text
    (kept,) = aside(tmp_path)
    assert RocksStore(tmp_path / kept, Cache(1 << 20)).get(b"row") == b"old"


async def test_a_store_of_a_deleted_changelog_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "partition-0"
    broker = broker_with((b"row", b"old"))
    await opened(path, broker)
    broker.recreate("changelog")
    broker.write(CHANGELOG, [(b"row", b"new", [])] * 5)
    assert await opened(path, broker) == {b"row": b"new"}
    assert "deleted and created again" in caplog.text
    assert len(aside(tmp_path)) == 1


async def test_a_store_is_kept_if_only_the_changelog_was_created_again(tmp_path: Path) -> None:
    """A worker that ran meanwhile has written to the new changelog, but not what it had before."""
    path = tmp_path / "partition-0"
    broker = broker_with()
    inputs = write_inputs({"mine.control": InputState(broker.topic_id("mine.control"))})
    broker.write(CHANGELOG, [(b"row", b"old", []), (INPUTS_KEY, inputs, [])])
    await opened(path, broker)
    broker.recreate("changelog")
    broker.write(CHANGELOG, [(b"other row", b"new", [])] * 5)
    with pytest.raises(StateLost, match="changelog was deleted and created again, but not mine.c"):
        await opened(path, broker)
    assert not aside(tmp_path)
    broker.recreate("mine.control")
    assert await opened(path, broker) == {b"other row": b"new"}
    assert len(aside(tmp_path)) == 1


async def test_a_store_whose_rings_belong_to_a_job_is_refused_until_they_are_back(
    tmp_path: Path,
) -> None:
    """The bytes are those of the changelog, which may be read years later."""
    path, broker = tmp_path / "partition-0", broker_with((b"row", b"old"))
    await opened(path, broker)
    job = JobOwner("s3a://b/rings", "id", 1_764_000_000_000, from_worker=True)
    row = write_owner(job)
    assert (OWNER_KEY, row) == (b"\0owner", b'\x81["s3a://b/rings","id",1764000000000,true]')
    assert read_owner(row) == job
    broker.write(CHANGELOG, [(OWNER_KEY, row, [])])
    for _ in range(2):  # also from the local store alone
        with pytest.raises(OwnedByJob, match=r"checkpoint s3a://b/rings, since 2025-11-24 16:00"):
            await opened(path, broker)
    broker.write(CHANGELOG, [(OWNER_KEY, None, []), (b"row", b"back", [])])
    assert await opened(path, broker) == {b"row": b"back"}


async def test_the_folder_of_another_partition_is_set_aside(tmp_path: Path) -> None:
    broker = broker_with((b"row", b"zero"))
    await opened(tmp_path / "partition-0", broker)
    store = await open_store(tmp_path / "partition-0", TP("changelog", 1), context_of(broker))
    assert store.get(b"row") is None
    assert len(aside(tmp_path)) == 1


# --- stores of 6d179b1, which do not say what they belong to --------------------------------------


def old_store(path: Path, broker: Broker, application: str, row: bytes) -> None:
    """Write a store as 6d179b1 did: up to date with its changelog, without an identity."""
    store = RocksStore(path, Cache(1 << 20))
    positions = write_positions({f"{application}.control": 1})
    store.apply([(b"row", row), (POSITIONS_KEY, positions)], broker.log(*CHANGELOG).end, NOW_MS)
    store.close()


async def test_an_old_store_that_matches_the_changelog_is_adopted(tmp_path: Path) -> None:
    path, broker = tmp_path / "partition-0", broker_with((b"row", b"in the changelog"))
    old_store(path, broker, "mine", b"in the store")
    store = await open_store(path, CHANGELOG, context_of(broker))
    assert store.get(b"row") == b"in the store"
    assert read_identity(store) == StoreIdentity("sim", "mine", 0, "changelog-0")


async def test_an_old_store_of_another_application_is_refused(tmp_path: Path) -> None:
    path, broker = tmp_path / "partition-0", broker_with((b"row", b"mine"))
    old_store(path, broker, "other", b"theirs")
    with pytest.raises(ForeignState, match="application 'other'"):
        await opened(path, broker)


async def test_an_old_store_that_differs_from_the_changelog_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, broker = tmp_path / "partition-0", broker_with((b"row", b"new"), (b"more", b"new"))
    old_store(path, broker, "mine", b"old")
    assert await opened(path, broker) == {b"row": b"new", b"more": b"new"}
    assert "does not match the changelog" in caplog.text


async def test_the_identity_row_has_these_bytes(tmp_path: Path) -> None:
    broker = broker_with()
    store = await open_store(tmp_path / "partition-0", CHANGELOG, context_of(broker))
    assert store.get(IDENTITY_KEY) == b'\x81["sim","mine",0,"changelog-0"]'
