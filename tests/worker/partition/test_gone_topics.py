"""A task whose topics go, come back, are created again or cannot be read (R111, R123, R128)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.errors import IllegalStateError, KafkaConnectionError
from faust.types import TP

from ringfaust.protocol.records import FetchedRecord
from ringfaust.worker.interfaces import Batch, Bounds
from ringfaust.worker.partition.task import Task
from tests.worker.partition.test_task import AnyReader, Log, OneCommit, Orders, new_task

GONE, IN, NEW = (TP(name, 0) for name in ("gone", "in", "new"))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfaust.worker.partition.task.RETRY_MIN_S", 0.01)


@asynccontextmanager
async def opened(
    work: OneCommit,
    orders: Orders | None = None,
    producers: list[Any] | None = None,
    **context: Any,
) -> AsyncIterator[Task]:
    """An open task, which runs one cycle at a time; `context`: what it has instead of the usual."""
    task = new_task(work, [], [] if producers is None else producers, orders)
    vars(task._context).update(context)
    async with asyncio.timeout(20):
        await task.open()
        yield task
        await task.close()


def fetch(tp: TP, first: int, end: int) -> Batch:
    records = [FetchedRecord(tp.topic, 0, number, value=b"x") for number in range(first, end)]
    return Batch(tp, records, 1, end)


class TwoTopics(Log):
    """Work on a topic whose route goes, beside the one that is decided."""

    tps = frozenset({GONE, IN})

    @property
    def positions(self) -> Mapping[str, int]:
        return {"gone": 0, **super().positions}


async def test_care_does_not_wait_for_a_topic_that_is_read_no_more() -> None:
    """R123, R128: one of two routes is removed while the partition recovers from an error."""

    class Rerouted(TwoTopics):
        def decide(self, records: Iterator[Any], wall_ms: int) -> None:
            if self.tps == {GONE, IN}:
                self.tps = frozenset({IN})
                raise ValueError("once")
            super().decide(records, wall_ms)

    work = Rerouted(poison=-1)
    async with opened(work) as task:
        for tp in (GONE, IN):
            task.offer(fetch(tp, 0, 1))
        await task.run_cycle()
        assert task.failure is not None
        task.offer(fetch(IN, 0, 1))
        await task.run_cycle()
        assert work.done == [0]
        assert task.failure is None


async def test_a_retry_is_answered_though_the_route_of_its_record_has_gone() -> None:
    """R123: an operator removes the route, and lets the partition try again."""

    class Rerouted(TwoTopics):
        def decide(self, records: Iterator[Any], wall_ms: int) -> None:
            found = list(records)
            if any(record.topic == "gone" for record in found):
                raise ValueError("a bug")
            super().decide(iter(found), wall_ms)

    work, orders = Rerouted(poison=-1), Orders()
    async with opened(work, orders) as task:
        for _ in range(2):
            task.offer(fetch(GONE, 0, 1))
            await task.run_cycle()
        assert task.trouble == "stopped at gone/0/0: ValueError: a bug"
        work.tps = frozenset({IN})
        orders.give(type="retry_partition")
        await task.wait_for_order()
        for number in range(3):
            task.offer(fetch(IN, number, number + 1))
            await task.run_cycle()
        assert await orders.answers.get() == ""
        assert work.done == [0, 1, 2]
        assert not task.trouble and task.failure is None


class Recreated(Log):
    """Its topic is created again when `is_new` is set."""

    is_new = False

    def topic_ids(self) -> dict[str, str]:
        return {"in": "second" if self.is_new else "first"}

    def check_inputs(self, *_: object) -> None:
        if self.is_new:
            self._position = 0
            self.done.clear()

    async def bounds(self, tps: Collection[TP]) -> dict[TP, Bounds]:
        """The new topic has a single record."""
        return {tp: Bounds(0, 1 if self.is_new else self.poison + 1, "id") for tp in tps}


async def until_stopped(task: Task, batch: Batch) -> None:
    while task.stopped is None:
        task.offer(batch)
        await task.run_cycle()


async def test_care_does_not_wait_for_what_a_topic_had_before_it_was_created_again() -> None:
    work = Recreated(poison=3)
    async with opened(work, read_bounds=work.bounds) as task:
        task.offer(fetch(IN, 0, 4))
        work.is_new = True
        await task.run_cycle()
        assert task.failure is not None
        work.poison = -1
        task.offer(fetch(IN, 0, 1))
        for _ in range(5):
            await task.run_cycle()
        assert work.positions == {"in": 1}
        assert task.failure is None


async def test_a_skip_is_refused_if_its_topic_was_created_again() -> None:
    """R111: the new topic has another record at that position."""
    work, orders = Recreated(poison=2), Orders()
    async with opened(work, orders) as task:
        await until_stopped(task, fetch(IN, 0, 3))
        assert task.trouble.startswith("stopped at in/0/2")
        work.is_new, work.poison = True, -1
        orders.give(type="skip_record", at="in/0/2")
        await task.wait_for_order()
        await task.run_cycle()
        assert await orders.answers.get() == "in was created again: the record is gone"
        task.offer(fetch(IN, 0, 4))
        for _ in range(6):
            await task.run_cycle()
        assert work.done == [0, 1, 2, 3]
        assert not work.skipped


async def test_a_retry_is_answered_though_its_topic_was_created_again() -> None:
    """R111, R123: the new topic ends before the position of the record."""
    work, orders = Recreated(poison=2), Orders()
    async with opened(work, orders, read_bounds=work.bounds) as task:
        await until_stopped(task, fetch(IN, 0, 3))
        work.is_new, work.poison = True, -1
        orders.give(type="retry_partition")
        await task.wait_for_order()
        task.offer(fetch(IN, 0, 1))
        for _ in range(3):
            await task.run_cycle()
        assert work.done == [0]
        assert await orders.answers.get() == ""


async def test_the_partition_stays_open_while_a_new_topic_cannot_be_looked_up() -> None:
    class Rerouted(OneCommit):
        tps = frozenset({IN})
        positions: Mapping[str, int] = {"in": 7, "new": 3}
        has_other_inputs = True

        def take_up_inputs(self) -> bool:
            self.has_other_inputs, self.tps = False, frozenset({IN, NEW})
            return True

    producers: list[Any] = []
    asked: list[Collection[TP]] = []

    async def bounds(tps: Collection[TP]) -> dict[TP, Bounds]:
        asked.append(tps)
        if len(asked) == 1:
            raise KafkaConnectionError("of the broker that leads new")
        return {}

    async with opened(Rerouted(), producers=producers) as task:
        context: Any = task._context
        context.read_bounds = bounds
        await task.run_cycle()
        while task._unread:
            await asyncio.sleep(0)
            await task.run_cycle()
    assert asked == [{NEW}, {NEW}]
    assert len(producers) == 1


async def test_a_topic_that_cannot_be_sought_keeps_no_other_from_it() -> None:
    names = ("control", "hop", "in", "a", "b", "gone")

    class Six(OneCommit):
        tps = frozenset(TP(name, 0) for name in names)
        positions: Mapping[str, int] = dict.fromkeys(names, 5)

    sought: list[str] = []

    class Reader(AnyReader):
        async def seek(self, tp: TP, offset: int) -> None:
            if tp.topic == "gone":
                raise IllegalStateError
            sought.append(tp.topic)

    async with opened(Six(), reader=Reader):
        assert sorted(sought) == sorted({*names} - {"gone"})


async def test_a_route_that_restoring_finds_begins_where_the_group_has_read_to() -> None:
    """R112, R128: the commit that seemed to fail has added it. Its records were repartitioned."""
    began: list[Mapping[str, Any]] = []

    class Rerouted(TwoTopics):
        tps = frozenset({IN})

        def restore(self, *args: object) -> None:
            super().restore(*args)
            self.tps = frozenset({IN, NEW})

        def check_inputs(self, bounds: Mapping[str, Bounds], committed: Mapping[str, Any]) -> None:
            began.append(committed)

    async def group_offsets(tps: Collection[TP]) -> Mapping[TP, Any]:
        return {tp: f"{tp.topic}'s" for tp in tps}

    async with opened(Rerouted(poison=-1), group_offsets=group_offsets):
        pass
    assert began == [{"in": "in's", "new": "new's"}]
