"""The store of a partition has one user at a time, and follows the changelog (R127)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rocksdict import Cache

from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.worker.store.changelog import OWN_PACE, STANDBY_PACE, Pace
from ringfaust.worker.store.follower import Follower, NotOpen, OwnStore
from ringfaust.worker.store.rocks import RocksStore, open_rocks_store
from tests.background import until
from tests.sim.broker import Broker
from tests.sim.kafka import VirtualConsumer, virtual_topic_ids

START_MS = END_MS = 1_000_000


class World:
    """A broker with a changelog, and a folder whose databases count how often they are opened."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(START_MS)
        self.opened: list[Path] = []
        self.context: Any = SimpleNamespace(
            application="sim", topics={Role.CHANGELOG: "changelog"}, data_dir=folder,
            open_store=self._open_store, topic_ids=virtual_topic_ids(self.broker),
            open_changelog=lambda: VirtualConsumer(self.broker), replaying={},
            tombstone_ms=3_600_000, clock=SimpleNamespace(wall_ms=lambda: self.broker.now_ms),
        )  # fmt: skip

    def _open_store(self, path: Path) -> RocksStore:
        self.opened.append(path)
        return open_rocks_store(path, Cache(1 << 20))

    def write(self, *keys: str) -> None:
        self.broker.write(("changelog", 0), [(key.encode(), b"x", []) for key in keys])

    def records_from(self, offset: int) -> tuple[list[FetchedRecord], int]:
        return self.broker.log("changelog", 0).read(offset, 1_000)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def rows(follower: Follower) -> list[bytes]:
    """What the partition's task finds when it opens it."""
    store = await follower.lend()
    found = [key for key, _ in store.items_from(b"k")]
    follower.take_back()
    return found


async def test_a_partition_is_opened_once_and_catches_up_before_and_after_it_is_fenced(
    world: World,
) -> None:
    """R124: the second time only the last records are left."""
    follower = Follower(0, world.context)
    world.write("k1", "k2")
    await follower.catch_up(OWN_PACE)
    world.write("k3")
    assert await rows(follower) == [b"k1", b"k2", b"k3"]
    assert len(world.opened) == 1


@pytest.mark.parametrize("pace", [OWN_PACE, STANDBY_PACE, Pace(1, rests=True)])
async def test_a_standby_follows_and_is_taken_over(
    world: World, pace: Pace, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower(0, world.context)
    world.write("k1", "k2", "k3")
    await follower.catch_up(pace)
    world.write("k4")
    follower.follow(*world.records_from(follower.next_offset), END_MS)
    world.write("k5")
    caplog.clear()
    with caplog.at_level("INFO"):
        assert await rows(follower) == [b"k1", b"k2", b"k3", b"k4", b"k5"]
    assert "partition 0: 1 records of its changelog applied" in caplog.text
    assert len(world.opened) == 1


async def test_nobody_else_changes_a_store_while_a_task_has_it(world: World) -> None:
    follower = Follower(0, world.context)
    await follower.catch_up(OWN_PACE)
    store = await follower.lend()
    world.write("k1")
    follower.follow(*world.records_from(0), END_MS)
    follower.rest()
    assert store.get(b"k1") is None
    assert store.applied == (0, START_MS)
    waiting = asyncio.ensure_future(follower.catch_up(STANDBY_PACE))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    follower.take_back()
    await waiting
    assert await rows(follower) == [b"k1"]
    assert len(world.opened) == 2


async def test_a_standby_that_is_opened_and_given_up_at_once_leaves_the_store_to_the_task(
    world: World,
) -> None:
    """RocksDB would refuse to open it twice."""
    follower = Follower(0, world.context)
    world.write(*[f"k{number}" for number in range(9)])
    opening = asyncio.ensure_future(follower.catch_up(Pace(1, rests=True)))
    await until(lambda: world.opened)
    opening.cancel()
    assert len(await rows(follower)) == 9
    with pytest.raises(asyncio.CancelledError):
        await opening


async def test_a_standby_whose_store_was_closed_by_a_late_task_says_so(world: World) -> None:
    """It must not go on as if it applied what it reads."""
    world.write("k1")
    follower = Follower(0, world.context)
    await follower.catch_up(STANDBY_PACE)
    follower.rest()  # as a task does that ends after the standby has begun
    world.write("k2")
    with pytest.raises(NotOpen):
        follower.follow(*world.records_from(follower.next_offset), END_MS)
    await follower.catch_up(STANDBY_PACE)
    assert await rows(follower) == [b"k1", b"k2"]


async def test_a_standby_that_rests_notes_how_far_it_has_come(world: World) -> None:
    """If not, a partition that nobody uses for a week would be rebuilt."""
    follower = Follower(0, world.context)
    await follower.catch_up(STANDBY_PACE)
    world.broker.now_ms += 500
    follower.follow([], 7, world.broker.now_ms)
    follower.rest()
    assert follower.offset == 7
    store = open_rocks_store(follower.path, Cache(1 << 20))
    assert store.applied == (7, START_MS + 500)
    store.close()


async def test_the_time_of_a_standby_that_lags_is_when_it_was_last_at_the_end(world: World) -> None:
    """The tombstones since then must still exist; see `replay`."""
    follower = Follower(0, world.context)
    await follower.catch_up(STANDBY_PACE)
    world.write("k1", "k2")
    world.broker.now_ms += 500
    records, _ = world.records_from(0)
    follower.follow(records[:1], 1, None)
    follower.rest()
    store = open_rocks_store(follower.path, Cache(1 << 20))
    assert store.applied == (1, START_MS)
    store.close()


async def test_a_standby_that_was_cut_off_for_longer_than_tombstones_are_kept_is_rebuilt(
    world: World,
) -> None:
    """It may have missed that rows were deleted, and would have them again."""
    world.write("k0")
    follower = Follower(0, world.context)
    await follower.catch_up(STANDBY_PACE)
    world.broker.now_ms += world.context.tombstone_ms + 1
    world.write("k1", "k2")
    with pytest.raises(NotOpen):
        follower.follow(*world.records_from(follower.next_offset), world.broker.now_ms)
    follower.rest()
    await follower.catch_up(STANDBY_PACE)
    assert len(world.opened) == 3  # once to find out


@pytest.mark.parametrize("end", ["taken over", "closed", "killed"])
async def test_a_standby_of_a_partition_that_was_idle_for_a_week_is_not_rebuilt(
    world: World, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has heard all the time that there was nothing to apply (R127)."""
    follower = Follower(0, world.context)
    world.write("k1")
    await follower.catch_up(STANDBY_PACE)
    for _ in range(24 * 7):
        world.broker.now_ms += world.context.tombstone_ms
        follower.follow([], follower.next_offset, world.broker.now_ms)
    if end == "closed":
        follower.rest()
    elif end == "killed":
        follower._close()
    world.broker.now_ms += 1_000
    world.write("k2", "k3")
    assert await rows(follower) == [b"k1", b"k2", b"k3"]
    assert "out of date" not in caplog.text


@pytest.mark.parametrize("damage", ["wiped", "damaged"])
async def test_a_wiped_or_damaged_standby_is_rebuilt(world: World, damage: str) -> None:
    follower = Follower(0, world.context)
    world.write("k1", "k2")
    await follower.catch_up(STANDBY_PACE)
    follower.rest()
    if damage == "wiped":
        shutil.rmtree(follower.path)
    else:
        (follower.path / "CURRENT").unlink()
    await follower.catch_up(STANDBY_PACE)
    assert await rows(follower) == [b"k1", b"k2"]


async def test_an_open_standby_whose_changelog_was_created_again_is_rebuilt(world: World) -> None:
    """R111: it has rows of the old one, and may have got some of the new one."""
    follower = Follower(0, world.context)
    world.write("k1", "k2")
    await follower.catch_up(STANDBY_PACE)
    world.broker.recreate("changelog")
    world.write("k3")
    assert await rows(follower) == [b"k3"]


async def test_an_open_standby_is_closed_if_the_brokers_do_not_answer(world: World) -> None:
    """Whoever opens it next could not otherwise."""
    follower = Follower(0, world.context)
    await follower.catch_up(STANDBY_PACE)

    async def no_answer(_: object) -> Any:
        raise OSError("no broker")

    answers, world.context.topic_ids = world.context.topic_ids, no_answer
    with pytest.raises(OSError, match="no broker"):
        await follower.lend()
    world.context.topic_ids = answers
    world.write("k1")
    assert await rows(follower) == [b"k1"]


async def test_a_standby_that_is_caught_up_is_taken_over_with_one_look_at_its_changelog(
    world: World,
) -> None:
    """After the death of the owner everybody waits for each look (R127)."""
    looks: list[VirtualConsumer] = []
    world.context.open_changelog = lambda: looks.append(VirtualConsumer(world.broker)) or looks[-1]
    follower = Follower(0, world.context)
    await follower.catch_up(STANDBY_PACE)
    world.write("k1", "k2")
    source = OwnStore(follower)
    for end_ms in (None, END_MS):  # it lags at first, which would last while nobody serves
        assert not follower.is_caught_up
        follower.follow(*world.records_from(follower.next_offset), end_ms)
    looks.clear()
    await source.catch_up()
    assert looks == []
    world.write("k3")
    store = await source.open({})
    assert [key for key, _ in store.items_from(b"k")] == [b"k1", b"k2", b"k3"]
    assert len(looks) == 1
    source.close()
    await source.catch_up()
    assert len(looks) == 2  # the task has closed it
    source.close()
