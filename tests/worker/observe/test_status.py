"""What a worker publishes of its queues and of itself, and what it does not publish twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ringfaust.client.status import StatusRows
from ringfaust.client.status_rows import QueueRates
from ringfaust.core.model import Counts
from ringfaust.kafka.status_topic import NoStatusTopic, StatusRow
from ringfaust.protocol.status import queue_key, read_key, worker_key
from ringfaust.times import wall_ms
from ringfaust.worker.observe import numbers, status
from ringfaust.worker.observe.health import Health
from ringfaust.worker.observe.memory import MemoryBudget
from ringfaust.worker.observe.numbers import Numbers
from ringfaust.worker.observe.status import StatusPublisher
from tests.background import running, until
from tests.worker.observe.partition import Partition


class Topic:
    """The status topic in memory."""

    def __init__(self) -> None:
        self.logs: dict[int, list[StatusRow]] = {0: [], 1: []}
        self.is_missing = False
        self.open = 0
        self.written: list[list[StatusRow]] = []
        """Since the last `take`."""

    async def start(self) -> None:
        self.open += 1
        if self.is_missing:
            raise NoStatusTopic("topic app.status does not exist")

    async def stop(self) -> None:
        self.open -= 1

    async def write(self, partition: int, rows: Sequence[StatusRow]) -> None:
        self.logs[partition] += rows
        self.written.append([*rows])

    async def read(self, partitions: Collection[int]) -> AsyncIterator[tuple[int, list[StatusRow]]]:
        for number in partitions:
            yield number, [*self.logs[number]]

    @property
    def size(self) -> int:
        """The bytes of all rows."""
        rows = [row for log in self.logs.values() for row in log]
        return sum(len(key) + len(value or b"") for key, value in rows)

    def take(self) -> dict[str, Any]:
        """The rows of queues that were written since the last call, by queue: the last of each."""
        rows = [row for batch in self.written for row in batch]
        self.written.clear()
        return {
            what[1]: None if value is None else json.loads(value)
            for key, value in rows
            if (what := read_key(key)) is not None and what[0] == "queue"
        }

    def reader(self) -> StatusRows:
        """What a reader makes of it."""
        rows = StatusRows()
        for number, log in self.logs.items():
            for key, value in log:
                rows.take(number, key, value)
        return rows


class World:
    """A worker with one partition, or none."""

    def __init__(self, topic: Topic, *works: Any, name: str = "worker-1") -> None:
        self.topic = topic
        self.works = [*works]
        self.standbys: dict[int, int | None] = {}

        def tasks() -> list[Any]:
            return [SimpleNamespace(trouble="", stopped=None, work=work) for work in self.works]

        self.health = Health(
            tasks, {}, lambda: 0.0, lambda: 0.0, MemoryBudget(1 << 40), has_joined=lambda: False,
            late_standbys=dict, unreadable=tuple,
        )  # fmt: skip
        self.numbers = Numbers(
            self.health, lambda: self.works, lambda tp: 100, lambda: self.standbys
        )
        self.publisher = StatusPublisher(
            topic,
            name,
            {"version": "1", "engine": "pure Python", "host": "h", "started_ms": 5},
            partitions=1,
            numbers=self.numbers,
            clock_skew_ms=lambda: None,
        )
        self.now_s = 0.0

    async def tick(self) -> dict[str, Any]:
        """A second passes; returns the rows of queues that are written."""
        await self.publisher._take_over(self.now_s)
        self.now_s += 1.0
        await self.publisher.tick(self.now_s)
        return self.topic.take()

    async def count(self) -> None:
        """Have every queue looked at once."""
        for work in self.works:
            await self.numbers.count_once(work, work.state, self.publisher.part)


@pytest.fixture
def work() -> Partition:
    return Partition({"q": {"ring_size": 3}, "by.*": {}})


@pytest.fixture
def topic() -> Topic:
    return Topic()


async def test_a_queue_is_published_when_it_changes_and_once_more_when_it_stops(
    topic: Topic, work: Partition
) -> None:
    world = World(topic, work)
    assert (await world.tick())["q"]["counts"] == {}  # declared by name, and never used
    assert await world.tick() == {}
    work.send("q", *"abcde")
    assert (await world.tick())["q"] == {
        "time_ms": 1_005_000,
        "partition": 0,
        "counts": {"ready": 3, "added": 5, "evicted": 2},
        "rates": {},  # nobody knows since when
        "evicted_by": {"overflow": 2},
        "bytes": 12,
        "oldest_ms": 1_002_000,
        "consumers": 0,
        "paused": [],
        "settings": {"ring_size": 3},
    }
    work.send("q", "f")
    work.now_ms += 60_000  # the clock may jump
    assert (await world.tick())["q"]["rates"] == {"added": 1.0, "evicted": 1.0}
    assert work.numbers.rates == {"q": {"added": 1.0, "evicted": 1.0}}, "metrics have the same"
    assert (await world.tick())["q"]["rates"] == {}
    assert work.numbers.rates == {}
    assert await world.tick() == {}
    await world.count()
    assert await world.tick() == {}
    work.do({"type": "pause", "queue": "q", "what": "dispatch"})
    row = (await world.tick())["q"]
    assert (row["paused"], row["counts"]["added"]) == (["dispatch"], 6)
    found = topic.reader().queue("q")
    assert found is not None
    assert found.counts == Counts(ready=3, added=6, evicted=3)
    assert (found.ring_size, found.rates, found.evicted_by) == (3, QueueRates(), {"overflow": 3})
    assert found.time_to_overwrite_s() is None  # it is idle


async def test_settings_of_its_own_are_published(topic: Topic, work: Partition) -> None:
    world = World(topic, work)
    work.do({"type": "create_queue", "queue": "new", "settings": {"max_messages": 7}})
    assert (await world.tick())["new"]["settings"] == {"max_messages": 7}
    work.do({"type": "configure", "queue": "new", "settings": {"ring_size": 2}})
    assert (await world.tick())["new"]["settings"] == {"max_messages": 7, "ring_size": 2}


async def test_a_deleted_queue_gets_a_tombstone(topic: Topic, work: Partition) -> None:
    world = World(topic, work)
    work.send("by.a", "m")
    await world.tick()
    work.do({"type": "purge", "queue": "by.a"})
    work.do({"type": "delete_queue", "queue": "by.a"})
    assert await world.tick() == {"by.a": None}
    assert topic.reader().queue("by.a") is None
    assert await world.tick() == {}


async def test_a_new_owner_corrects_what_its_predecessor_has_left(
    topic: Topic, work: Partition
) -> None:
    first = World(topic, work)
    work.send("by.kept", "m")
    work.send("by.busy", "m")
    await first.tick()
    work.send("by.busy", "n")
    await first.tick()  # this row has rates
    work.send("by.late", "m")  # not published any more
    topic.logs[0] += [
        (queue_key("by.gone"), b'{"counts": {"added": 1}}'), (b"what", b"ever"), (None, b"\xff"),
        (queue_key("by.kept/"), b"nonsense"),
    ]  # fmt: skip
    work.numbers.take_changed()
    topic.take()

    second = World(topic, work, name="worker-2")
    await second.tick()
    await second.count()
    rows = await second.tick()
    assert rows.keys() == {"by.busy", "by.late", "by.gone", "by.kept/"}
    assert rows["by.busy"]["rates"] == {}
    assert rows["by.late"]["counts"]["ready"] == 1
    assert (rows["by.gone"], rows["by.kept/"]) == (None, None)
    await second.count()
    assert await second.tick() == {}


async def test_the_oldest_message_of_a_queue_that_is_not_decoded_is_known(
    topic: Topic, work: Partition
) -> None:
    work.send("by.a", "m")
    work.send("by.b", "n")
    first_ms = work.now_ms - 2_000
    again = Partition({"by.*": {}})
    for key, value in work.store.items_from(b""):
        again.store.apply([(key, value)])
    world = World(topic, again)
    await world.tick()
    await world.count()
    rows = await world.tick()
    assert {name: row["oldest_ms"] - first_ms for name, row in rows.items()} == {
        "by.a": 0, "by.b": 1_000,
    }  # fmt: skip
    assert not again.state.queues


async def test_a_bound_for_bytes_gives_every_queue_its_turn(
    topic: Topic, work: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "BYTES_PER_S", 2_000)
    names = {f"by.{number:02}" for number in range(30)}
    world = World(topic, work)
    await world.tick()
    seen: list[str] = []
    for _ in range(6):
        for name in sorted(names):
            work.send(name, f"m{work.now_ms}")
        before = topic.size
        rows = await world.tick()
        written = topic.size - before
        assert written < 2_000 + 500 + 500  # one row more, and the worker's own
        seen += rows
    assert {*seen} == names
    assert max(map(seen.count, names)) - min(map(seen.count, names)) <= 1


async def test_queues_beyond_the_bound_are_counted_and_not_published(
    topic: Topic, work: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "MOST_QUEUES", 3)
    for number in range(5):
        work.send(f"by.{number}", "m")
    world = World(topic, work)
    rows = await world.tick()
    assert len(rows) == 3
    await world.count()
    assert await world.tick() == {}
    hidden = {f"by.{number}" for number in range(5)} - rows.keys()
    work.do({"type": "pause", "queue": min(hidden), "what": "dispatch"})
    assert await world.tick() == {}
    world.now_s += status.BEAT_S
    await world.publisher.tick(world.now_s)
    (worker,) = topic.reader().workers.values()
    assert (worker.queues, worker.published) == (5, 3)


async def test_a_worker_that_dies_later_is_forgotten_too(topic: Topic, work: Partition) -> None:
    """The owner of the rows has had their partition since long before."""
    world = World(topic, work)
    await world.tick()
    old = json.dumps({"time_ms": wall_ms() - 2 * status._FORGET_MS}).encode()
    topic.logs[0].append((worker_key("dead"), old))
    await world.tick()
    assert (worker_key("dead"), None) not in topic.logs[0]  # it is not looked at all the time
    world.now_s += status._FORGET_MS / 1000
    work.send("q", "a")
    assert [*await world.tick()] == ["q"]
    assert (worker_key("dead"), None) in topic.logs[0]


async def test_a_worker_tells_of_itself_and_takes_its_row_back(
    topic: Topic, work: Partition
) -> None:
    work.send("q", "a")
    world = World(topic, work)
    old = json.dumps({"time_ms": wall_ms() - 2 * status._FORGET_MS}).encode()
    fresh = json.dumps({"time_ms": wall_ms()}).encode()
    odd = (worker_key("odd"), b"[" * 100_000)
    topic.logs[0] += [(worker_key("dead"), old), (worker_key("other"), fresh), odd]
    await world.tick()
    assert {(worker_key("dead"), None), (worker_key("odd"), None)} <= {*topic.logs[0]}
    assert (worker_key("other"), None) not in topic.logs[0]
    (found,) = topic.reader().workers.values()  # the other's row lacks fields
    assert (found.worker, found.partitions, found.is_ready) == ("worker-1", (0,), True)
    assert (found.lag, found.recovering, found.clock_skew_ms) == ({0: 99}, {}, None)
    assert not found.is_stale(found.time_ms + 5_000)
    assert found.is_stale(found.time_ms + 60_000)
    beats = [key for key, _ in topic.logs[0]].count(worker_key("worker-1"))
    await world.tick()
    assert [key for key, _ in topic.logs[0]].count(worker_key("worker-1")) == beats
    world.standbys = {3: None, 7: 5}
    await world.tick()  # a change is told at once
    (found,) = topic.reader().workers.values()
    assert found.standbys == {3: None, 7: 5}
    world.standbys = {3: 9, 7: 1}  # this one, too: one more is caught up
    await world.tick()
    world.standbys = {3: 8, 7: 0}  # but not this one
    await world.tick()
    (found,) = topic.reader().workers.values()
    assert found.standbys == {3: 9, 7: 1}
    world.works.clear()
    await world.tick()
    (found,) = topic.reader().workers.values()
    assert (found.partitions, found.is_ready) == ((), False)
    assert found.problems == ("the group has not assigned anything to this worker yet",)


async def test_a_stopped_worker_removes_its_row(topic: Topic, work: Partition) -> None:
    world = World(topic, work)
    async with running(world.publisher.run()):
        await until(lambda: topic.reader().workers)
    assert not topic.reader().workers


async def test_a_missing_topic_and_a_failing_one_cost_a_line_of_log(
    topic: Topic, work: Partition, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(status, "_RETRY_S", 0)
    monkeypatch.setattr(status, "TICK_S", 0.001)
    topic.is_missing = True
    work.send("by.a", "m")
    world = World(topic, work)
    async with asyncio.timeout(30), running(world.publisher.run()):
        for _ in range(50):
            await asyncio.sleep(0)
        topic.is_missing = False
        await until(lambda: topic.reader().queue("q"))
        failures: list[BaseException] = [OSError("the broker is away")] * 3
        failures.append(asyncio.CancelledError("a reader stops"))
        monkeypatch.setattr(topic, "write", _failing(topic.write, failures))
        work.send("q", "b")
        while topic.reader().queue("q").counts.added == 0:  # type: ignore[union-attr]
            await world.count()
            await asyncio.sleep(0)
    assert topic.open == 0  # each time it was closed
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "the status is not published: topic app.status does not exist",
        "the status is not published: the broker is away",
        "the status is not published: a reader stops",
    ]


def _failing(write: Any, failures: list[BaseException]) -> Any:
    async def fail(*arguments: Any) -> None:
        if failures:
            raise failures.pop(0)
        await write(*arguments)

    return fail


async def test_a_partition_that_is_revoked_is_left_to_its_next_owner(
    topic: Topic, work: Partition
) -> None:
    world = World(topic, work)
    await world.tick()
    work.send("q", "a")
    world.works.clear()
    assert await world.tick() == {}


def test_the_count_takes_as_long_as_its_bounds_say() -> None:
    assert numbers._ROWS / numbers._BETWEEN_ROWS_S == 1_000  # docs/protocol.md says so
