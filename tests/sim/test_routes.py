"""Routes that go and come back while the partition is busy, stops or recovers (R123, R128)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from faust.types import TP

from ringfaust.protocol.route_changes import feeds_of
from ringfaust.worker import assignment
from ringfaust.worker.assignment import Assignment
from tests.sim.plan import PARTITIONS, REMOVABLE, ROUTES, Plan, partition_for
from tests.sim.run import play
from tests.sim.test_sim import lines_of
from tests.sim.worker import Unit
from tests.sim.world import World

ALL = [("control", 99), ("hop", 99), ("keyed", 99), (REMOVABLE, 99)]
RING = Plan({"a": {"ring_size": 9}}, {})
RETAINING = Plan(
    {}, {"prices": {"retroactive_count": 3, "subscriptions": {"all": {}}}}, step_transitions=1
)


class Partition:
    """One partition of a world, and its driver."""

    def __init__(self, plan: Plan, queue: str) -> None:
        self.world = World(plan)
        self.where = partition_for(queue)
        self.queue = queue

    def send(self, topic: str, message: str) -> None:
        self.world.do(("send", topic, self.queue, {"id": message}))

    def apply(self, *, has_route: bool) -> None:
        self.world.do(("apply", "", {}, has_route, True))

    def work(self, times: int) -> None:
        for _ in range(times):
            self.world.do(("work", self.where, ALL, 3))

    def careful_cycle(self, topics: list[tuple[str, int]], pauses: int = 3) -> None:
        """As `work`, but a failure of the task is no error."""
        for topic, most in topics:
            self.worker.fetch(Unit(self.where), topic, most)
        driver = self.worker.drivers[Unit(self.where)]
        driver._loop.run_until_complete(driver._run_cycle())
        for _ in range(pauses):
            driver.drive_commit()

    @property
    def worker(self) -> Any:
        return self.world._worker(Unit(self.where))

    @property
    def task(self) -> Any:
        return self.worker.drivers[Unit(self.where)]._task

    def added(self, message: str) -> bool:
        lines = lines_of(self.world, "added", partition=self.where)
        return any(f'"{message}"' in line for line in lines)


@pytest.fixture
def made() -> Iterator[list[Partition]]:
    partitions: list[Partition] = []
    yield partitions
    for each in partitions:
        each.world.close()


def test_a_route_that_is_gone_and_back_between_two_cycles_loses_nothing(
    made: list[Partition], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is in a long step; another one of the worker takes up both revisions."""
    it = Partition(RING, "a")
    made.append(it)
    it.send(REMOVABLE, "m0")
    it.work(3)
    reader, task = it.worker.reader, it.task
    task.start = lambda: None
    monkeypatch.setattr(assignment, "partition_task", lambda *_: task)
    reader.change_topics, reader.partitions_of = lambda _: None, lambda _: PARTITIONS
    given = it.worker.drivers[Unit(it.where)].given
    both: Any = Assignment(task._context, RING.feeds())
    both.standbys = SimpleNamespace(follow=lambda *_: None)
    both._assigned = (given, frozenset())
    both._change_tasks()
    it.apply(has_route=False)
    it.apply(has_route=True)
    fewer = {"routes": [each for each in ROUTES if each["topic"] != REMOVABLE]}
    for revision, document in ((1, fewer), (2, {"routes": ROUTES})):
        both.use_routes(revision, feeds_of(document, PARTITIONS))
        it.send(REMOVABLE, f"m{revision}")
        if batch := reader.fetch(TP(REMOVABLE, it.where), 99):
            both.offer(batch)
    it.work(8)
    assert [it.added(f"m{number}") for number in range(3)] == [True] * 3


def test_care_decides_nothing_by_the_routes_before_a_large_apply(made: list[Partition]) -> None:
    it = Partition(RETAINING, "prices")
    made.append(it)
    for number in range(3):
        it.send("keyed", f"k{number}")
    it.work(8)
    it.task.failure, it.task._suspects = ValueError("once"), {REMOVABLE: 99}
    it.world.do(("apply", "prices", {"retroactive_count": 0}, False, True))
    it.careful_cycle([("control", 99)])
    it.send(REMOVABLE, "waits")
    for _ in range(8):
        it.careful_cycle(ALL)
    assert it.task.work.state.configuration.revision == 1
    assert not it.added("waits")


def test_a_partition_that_stops_while_it_reopens_reads_no_removed_topic(
    made: list[Partition],
) -> None:
    it = Partition(RING, "a")
    made.append(it)
    it.work(3)
    task = it.task
    given: asyncio.Queue[Any] = asyncio.Queue()

    async def forbidden(_: object) -> Any:
        raise TopicAuthorizationFailedError("keyed")

    async def open_orders(_: int) -> Any:
        async def answer(*_: object) -> None: ...

        async def close() -> None: ...

        return SimpleNamespace(next=lambda _: given.get(), answer=answer, close=close)

    allowed = task._context.read_bounds
    object.__setattr__(task._context, "open_orders", open_orders)
    object.__setattr__(task._context, "read_bounds", forbidden)
    it.apply(has_route=False)
    it.careful_cycle([("control", 99)], 2)
    while task._commits.is_running:
        it.worker.drivers[Unit(it.where)].drive_commit()
    task._commits._error = KafkaConnectionError()  # its outcome is unknown, but it is there
    it.careful_cycle([], 0)
    assert task.stopped is not None
    assert TP(REMOVABLE, it.where) not in it.worker.reader._positions
    object.__setattr__(task._context, "read_bounds", allowed)
    it.send(REMOVABLE, "after")
    given.put_nowait(SimpleNamespace(type="retry", by="ann"))
    it.worker.drivers[Unit(it.where)]._run(task.wait_for_order())
    for _ in range(4):
        it.careful_cycle(ALL)
    assert task.stopped is None
    assert not it.added("after")


def test_time_acts_though_the_log_of_a_removed_route_was_never_read() -> None:
    """R110, R128: what the topic had at the assignment is not waited for."""
    world = World(Plan({"a": {"ring_size": 2}}, {}))
    where = partition_for("a")
    try:
        world.do(("send", "keyed", "a", {"id": "short", "ttl-ms": 20}))
        world.do(("send", "timed", "a", {"id": "unread"}))
        world.do(("apply", "", {}, False, True))
        for wait_ms in (0, 0, 0, 30, 0):
            world.do(("advance", wait_ms))
            world.do(("work", where, [("control", 9), ("keyed", 9)], 3))
        assert lines_of(world, "applied")
        assert lines_of(world, "expired")
        world.finish()
        assert "unread" in "".join(lines_of(world, "added"))
    finally:
        world.close()


def test_a_partition_that_is_opened_again_reads_no_topic_whose_route_was_removed() -> None:
    """R128: the configuration is in its state, and the rest of the command is not done yet."""
    prices = {"retroactive_count": 3, "subscriptions": {"all": {}}}
    where = partition_for("prices")
    everything = [("control", 9), ("keyed", 9), ("timed", 9)]
    less = {"retroactive_count": 0}
    configure = {"type": "configure_address", "address": "prices", "settings": less}
    world = play(
        Plan({}, {"prices": prices}, step_transitions=1),
        [
            ("say", where, configure, 1),
            ("apply", "prices::all", {"redelivery_delay_max": 30}, False, True),
            ("work", where, everything, 1),
            ("late", where, [("timed", 9), ("keyed", 9)]),
            ("send", "timed", "prices", {"id": "waits"}),
            ("work", where, everything, 3),
        ],
    )
    shown = lines_of(world, "applied", "added", partition=where)
    assert ['"added"' in line for line in shown] == [False, False, True], "after its route"
