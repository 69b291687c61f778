"""The standbys of a worker follow the changelog beside its own partitions (R127)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError
from rocksdict import Cache

from ringfaust.protocol.records import Role
from ringfaust.worker.clock import SystemClock
from ringfaust.worker.store import standbys
from ringfaust.worker.store.follower import Follower
from ringfaust.worker.store.rocks import StoreUnusable, open_rocks_store
from ringfaust.worker.store.standbys import Standbys
from tests.background import running, until
from tests.sim.broker import Broker
from tests.sim.kafka import VirtualConsumer, virtual_topic_ids


class Consumer:
    """Reads several partitions of the virtual broker, as aiokafka does."""

    def __init__(self, broker: Broker, errors: list[Exception], silent: list[bool]) -> None:
        self._broker = broker
        self._silent = silent
        self._errors = errors
        self._at: dict[TopicPartition, int] = {}
        self._heard: dict[TopicPartition, tuple[int, int]] = {}

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        self._at, self._heard = dict.fromkeys(tps, -1), {}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        assert tp in self._at
        self._at[tp] = offset

    async def position(self, tp: TopicPartition) -> int:
        return self._at[tp]

    def last_stable_offset(self, tp: TopicPartition) -> int | None:
        return self._heard.get(tp, (None, None))[0]

    def last_poll_timestamp(self, tp: TopicPartition) -> int | None:
        return self._heard.get(tp, (None, None))[1]

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, Any]:
        await asyncio.sleep(0)
        if self._errors:
            raise self._errors.pop()
        found = {}
        for tp, at in self._at.items():
            assert at >= 0, "not sought"
            log = self._broker.log(*tp)
            records, self._at[tp] = log.read(at, max_records)
            if not self._silent:
                self._heard[tp] = (log.end, self._broker.now_ms)
            if records:
                found[tp] = records
        return found


class World:
    """A broker, and a worker that follows some of the changelog's partitions."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(1_000_000)
        self.errors: list[Exception] = []
        """What the next fetches raise."""
        self.silent: list[bool] = []
        """Not empty: the brokers do not answer."""
        self.context: Any = SimpleNamespace(
            application="sim", topics={Role.CHANGELOG: "changelog"}, data_dir=folder,
            open_store=lambda path: open_rocks_store(path, Cache(1 << 20)),
            topic_ids=virtual_topic_ids(self.broker), replaying={}, tombstone_ms=3_600_000,
            open_changelog=lambda: VirtualConsumer(self.broker),
            open_standby_log=lambda: Consumer(self.broker, self.errors, self.silent),
            clock=SystemClock(),
        )  # fmt: skip
        self.followers: dict[int, Follower] = {}
        self.standbys = Standbys(self.context, self.follower)

    def follower(self, number: int) -> Follower:
        return self.followers.setdefault(number, Follower(number, self.context))

    def write(self, number: int, *keys: str) -> None:
        self.broker.write(("changelog", number), [(key.encode(), b"x", []) for key in keys])

    def has(self, number: int) -> int | None:
        return self.follower(number).offset

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with running(self.standbys.run()):
            yield
        await self.standbys.stop()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(standbys, "_RETRY_S", 0.01)
    return World(tmp_path)


async def test_standbys_follow_and_say_how_far_they_are_behind(world: World) -> None:
    world.write(0, "k1", "k2")
    async with world.running():
        world.standbys.follow({0, 2}, ())
        assert world.standbys.behind == {0: None, 2: None}
        await until(lambda: world.standbys.behind == {0: 0, 2: 0})
        world.write(0, "k3")
        world.write(2, "k4")
        await until(lambda: (world.has(0), world.has(2)) == (3, 1))
        assert world.standbys.behind == {0: 0, 2: 0}


async def test_a_standby_is_late_until_it_has_caught_up_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with late ones is not ready. Opening ends where the changelog did when it began."""
    monkeypatch.setattr(standbys, "_RECORDS", 1)
    monkeypatch.setattr(standbys, "CAUGHT_UP_RECORDS", 2)

    def burst() -> None:
        world.write(0, *[f"k{number}" for number in range(50)])

    world.silent.append(True)
    async with world.running():
        world.standbys.follow({0, 1}, ())
        assert world.standbys.late == {0: None, 1: None}
        await until(lambda: world.standbys.late == {0: 0, 1: 0})  # nobody has said so yet
        burst()
        world.silent.clear()
        await until(lambda: (world.standbys.late.get(0) or 0) > 2)
        await until(lambda: not world.standbys.late)
        burst()
        await until(lambda: (world.standbys.behind[0] or 0) > 2)
        assert not world.standbys.late
        world.standbys.follow({1}, ())
        world.standbys.follow({0, 1}, ())
        assert world.standbys.late == {0: None}


async def test_a_standby_notes_when_the_brokers_said_that_there_is_nothing_to_apply(
    world: World,
) -> None:
    """It is taken over as it is after an idle week, but not if it was cut off that long."""
    hour_ms = world.context.tombstone_ms
    world.broker.now_ms = world.context.clock.wall_ms()
    async with world.running():
        world.write(0, "k1")
        world.standbys.follow({0}, ())
        await until(lambda: world.standbys.behind == {0: 0})
        store: Any = world.follower(0)._store
        world.broker.now_ms += 10 * hour_ms
        await until(lambda: store.applied[1] == world.broker.now_ms)
        world.silent.append(True)
        world.broker.now_ms += 10 * hour_ms
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert store.applied[1] == world.broker.now_ms - 10 * hour_ms


async def test_a_task_takes_over_the_open_store_and_the_standby_takes_it_back(world: World) -> None:
    """A partition moves here, and back to its owner."""
    world.write(0, "k1")
    async with world.running():
        for number in (1, 2, 3):
            world.standbys.follow({0}, ())
            await until(lambda: world.standbys.behind == {0: 0})
            world.standbys.follow((), {0})
            assert world.follower(0).is_free  # the database is open
            store = await world.follower(0).lend()
            world.write(0, f"n{number}")
            world.standbys.follow({0}, ())  # it has moved on, and is being handed over
            await asyncio.sleep(0.01)
            assert store.get(f"n{number}".encode()) is None
            assert not world.standbys.late  # nobody is nearer to the state
            world.follower(0).take_back()
        await until(lambda: world.has(0) == 4)


async def test_a_standby_that_nobody_needs_is_closed(world: World) -> None:
    async with world.running():
        world.standbys.follow({0, 1}, ())
        await until(lambda: world.standbys.behind == {0: 0, 1: 0})
        world.standbys.follow({1}, ())
        assert not world.follower(0).is_free
        assert world.follower(1).is_free
        open_rocks_store(world.follower(0).path, Cache(1 << 20)).close()
    open_rocks_store(world.follower(1).path, Cache(1 << 20)).close()


async def test_a_standby_that_is_given_up_while_it_opens_leaves_nothing_open(world: World) -> None:
    world.write(0, *[f"k{number}" for number in range(50)])
    async with world.running():
        for _ in range(20):
            world.standbys.follow({0}, ())
            await asyncio.sleep(0)
            world.standbys.follow((), ())
        store = await world.follower(0).lend()
        assert store.applied[0] == 50
        world.follower(0).take_back()


@pytest.mark.parametrize(
    "error", [KafkaConnectionError("away"), OffsetOutOfRangeError({})], ids=["away", "out of range"]
)
async def test_an_error_of_the_brokers_begins_it_again(world: World, error: Exception) -> None:
    async with world.running():
        world.standbys.follow({0}, ())
        await until(lambda: world.standbys.behind == {0: 0})
        world.errors.append(error)
        await until(lambda: not world.errors)
        world.write(0, "k1")
        await until(lambda: world.has(0) == 1)


async def test_a_full_disk_is_told_once_and_stops_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    full = [True]
    opens = []

    def open_store(path: Path) -> Any:
        opens.append(path)
        if full and path.name == "partition-0":
            raise StoreUnusable(path, "No space left on device")
        return open_rocks_store(path, Cache(1 << 20))

    world.context.open_store = open_store
    async with world.running():
        world.standbys.follow({0, 1}, ())
        await until(lambda: len(opens) > 3)
        assert world.standbys.behind == {0: None, 1: 0}
        await until(lambda: not world.standbys.late)  # so it does not hold up a rolling update
        full.clear()
        await until(lambda: world.standbys.behind == {0: 0, 1: 0})
    told = [text for text in caplog.messages if "standby of partition 0" in text]
    assert len(told) == 1
    assert "No space left on device" in told[0]


async def test_a_damaged_standby_is_rebuilt(world: World) -> None:
    async with world.running():
        world.write(0, "k1")
        world.standbys.follow({0}, ())
        await until(lambda: world.standbys.behind == {0: 0})
        store: Any = world.follower(0)._store
        with pytest.raises(Exception, match="is damaged"):
            store._fail(Exception("Corruption: block checksum mismatch"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "apply", lambda *_: store._fail(Exception("Corruption: bad")))
            world.write(0, "k2")
            await until(lambda: world.follower(0)._store is not store)
        await until(lambda: world.has(0) == 2)
        assert [*world.context.data_dir.glob("partition-0.set-aside-*")]
        assert [key for key, _ in (await world.follower(0).lend()).items_from(b"k")] == [
            b"k1", b"k2"
        ]  # fmt: skip
        world.follower(0).take_back()
