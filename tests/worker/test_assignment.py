"""Which partitions a worker opens and hands over (R124), and topics that nobody reads (R111)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest
from aiokafka.errors import IllegalStateError, KafkaError
from faust.types import TP

from ringfaust.core.catalog import Configuration
from ringfaust.kafka.topic_ids import TopicIds
from ringfaust.protocol.records import Role
from ringfaust.protocol.route_changes import feeds_of
from ringfaust.protocol.routes import Route
from ringfaust.protocol.stored_rows import Feed, Feeds
from ringfaust.worker import assignment
from ringfaust.worker.assignment import Assignment, NotCopartitioned
from ringfaust.worker.faust.shares import Held
from ringfaust.worker.interfaces import InputChanged
from ringfaust.worker.partition.pausing import InputPauses
from ringfaust.worker.partition.task import RECOVERING
from ringfaust.worker.store.follower import Follower
from tests.background import running, until

CONTROL, HOP = "app.control", "app.hop"


class Surroundings:
    """A context: the topics that exist, a clock, and a reader that notes its calls."""

    def __init__(self, *existing: str) -> None:
        self.existing = set(existing)
        self.looks = 0
        self.rejoins = 0
        self.counts: dict[str, int] = {}
        """By topic: how many partitions it has, if not as many as the application."""
        self.newest: Configuration | None = None
        self.readings = 0
        self.now_s = 0.0
        self.sought: list[tuple[TP, int]] = []
        self.clock = SimpleNamespace(monotonic_s=lambda: self.now_s)
        self.topics = {Role.CONTROL: CONTROL, Role.HOP: HOP, Role.CHANGELOG: "app.changelog"}
        self.reader = lambda: self
        self.context: Any = self
        self.partitions = 4
        self.takes_standbys = True
        self.replaying: dict[int, int] = {}
        self.data_dir = Path("data")
        self.members: bool | Exception = False
        self.ending: asyncio.Event | Exception = asyncio.Event()
        self.ending.set()
        self.trouble = ""
        """Of new tasks."""
        self.calls: list[str] = []
        """What was asked of the reader, and what became of the tasks, in order."""

    async def topic_ids(self, names: Collection[str]) -> TopicIds:
        self.looks += 1
        return TopicIds("cluster", {name: f"id of {name}" for name in self.existing & {*names}})

    def rejoin(self) -> None:
        self.rejoins += 1

    def partitions_of(self, topic: str) -> int:
        return self.counts.get(topic, self.partitions)

    def change_topics(self, topics: Collection[str]) -> None:
        self.calls.append(f"topics {' '.join(sorted(topics))}")

    async def newest_configuration(self) -> Configuration | None:
        self.readings += 1
        return self.newest

    def pause_until_seek(self, tp: TP) -> None:
        """Nothing to note."""

    async def seek(self, tp: TP, offset: int) -> None:
        self.sought.append((tp, offset))

    def stop_reading(self, tps: Collection[TP]) -> None:
        self.calls.append(f"stop reading {min(tps).partition}")

    async def end_membership(self) -> None:
        self.calls.append("end membership")
        if isinstance(self.ending, Exception):
            raise self.ending
        await self.ending.wait()

    async def leave_group(self) -> bool:
        self.calls.append("leave")
        if isinstance(self.members, Exception):
            raise self.members
        return self.members

    def crash(self, error: BaseException) -> None:
        self.calls.append(repr(error))


class FakeTask:
    """A task that notes what becomes of it, and is served until `fenced` is set."""

    def __init__(
        self,
        name: str,
        number: int,
        topics: Collection[str],
        world: Surroundings,
        route: Route | None = None,
    ) -> None:
        tps = frozenset(TP(topic, number) for topic in topics)
        self.work = SimpleNamespace(tps=tps, name=name, topic_ids=dict)
        self.trouble = world.trouble
        self.number: int | str = number if route is None else f"{route.topic}/{number}"
        self.route = route
        self.calls = world.calls
        self.fenced, self.may_close = asyncio.Event(), asyncio.Event()
        self.fenced.set()  # until it is started
        self.may_close.set()
        self.offered: list[Any] = []

    def give(self, topics: Collection[str]) -> None:
        self.work.tps = frozenset(TP(topic, self.number) for topic in topics)
        self.calls.append(f"give {self.number}: {' '.join(sorted(topics))}")

    def start(self) -> None:
        self.calls.append(f"start {self.number}")
        self.fenced.clear()

    def offer(self, batch: Any) -> None:
        self.offered.append(batch)

    async def hand_over(self) -> None:
        self.calls.append(f"hand over {self.number}")
        await self.fenced.wait()

    async def close(self) -> None:
        await asyncio.sleep(0)
        await self.may_close.wait()
        self.calls.append(f"close {self.number}")


ALL = (CONTROL, HOP, "in")
IN, FAR = Feed("in", "{key}", False), Feed("far", "far", True)
FEEDS = Feeds(4, (IN,))


def partitions(*numbers: int, topics: Collection[str] = ALL) -> frozenset[TP]:
    return frozenset(TP(topic, number) for topic in topics for number in numbers)


NONE: frozenset[int] = frozenset()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    def partition_task(store: Follower, topics: Collection[str], world: Surroundings) -> FakeTask:
        return FakeTask(f"partition {store.number}", store.number, topics, world)

    def repartition_task(route: Route, number: int, world: Surroundings, revision: int) -> FakeTask:
        name = f"{route.queue} of revision {revision}"
        return FakeTask(name, number, [route.topic], world, route)

    monkeypatch.setattr(assignment, "partition_task", partition_task)
    monkeypatch.setattr(assignment, "repartition_task", repartition_task)
    return Surroundings(*ALL)


async def rebalance(found: Assignment, tps: frozenset[TP]) -> None:
    await found.on_assigned(tps, NONE)
    await settle()


async def assigned(world: Surroundings, *numbers: int) -> Assignment:
    """An assignment that has these partitions."""
    found = Assignment(world.context, FEEDS)
    await rebalance(found, partitions(*numbers))
    world.calls.clear()
    return found


FAR_5 = partitions(5, topics=["far"])
"""A partition of a topic that is repartitioned."""


async def repartitioning(world: Surroundings) -> Assignment:
    """An assignment that has partition 0, and one of a topic that is repartitioned."""
    found = Assignment(world.context, Feeds(4, (IN, FAR)))
    await rebalance(found, partitions(0) | FAR_5)
    return found


def task_of(found: Assignment, number: int) -> Any:
    return next(task for task in found._tasks.values() if task.number == number)  # type: ignore[attr-defined]


async def test_a_partition_that_stays_is_not_touched(world: Surroundings) -> None:
    found = await assigned(world, 0, 1)
    await rebalance(found, partitions(0, 2))
    assert world.calls == ["start 2", "hand over 1"]
    assert {task.work.name for task in found.tasks} == {"partition 0", "partition 2"}


async def test_a_partition_that_moves_is_served_until_its_next_owner_has_it(
    world: Surroundings,
) -> None:
    found = await assigned(world, 0, 1)
    leaving, batch = task_of(found, 1), SimpleNamespace(tp=TP("in", 1))
    await rebalance(found, partitions(0))
    found.offer(batch)
    assert leaving.offered == [batch]
    leaving.fenced.set()
    await settle()
    assert world.calls == ["hand over 1", "close 1", "stop reading 1"]
    found.offer(batch)
    assert leaving.offered == [batch]


async def test_a_partition_that_comes_back_is_closed_before_it_is_opened(
    world: Surroundings,
) -> None:
    """Two tasks would use one store."""
    found = await assigned(world, 0, 1)
    await rebalance(found, partitions(0))
    await rebalance(found, partitions(0, 1))
    assert world.calls == ["hand over 1", "close 1", "stop reading 1", "start 1"]
    assert {task.work.name for task in found.tasks} == {"partition 0", "partition 1"}


async def test_a_partition_that_comes_and_goes_meanwhile_is_not_opened(world: Surroundings) -> None:
    found = await assigned(world, 0, 1)
    for numbers in ((0,), (0, 1), (0,)):
        await found.on_assigned(partitions(*numbers), NONE)
    task_of(found, 1).fenced.set()
    await settle()
    assert "start 1" not in world.calls
    assert world.calls.count("close 1") == 2
    assert {task.work.name for task in found.tasks} == {"partition 0"}
    assert {tp.partition for tp in found._tasks} == {0}


async def test_a_partition_that_comes_and_goes_while_it_is_closed_is_closed_once(
    world: Surroundings,
) -> None:
    """Its last commit may take seconds; the task that waits for that has nothing to close."""
    found = await assigned(world, 0, 1)
    leaving = task_of(found, 1)
    leaving.may_close.clear()
    for numbers in ((0,), (0, 1), (0,)):
        await rebalance(found, partitions(*numbers))
    leaving.may_close.set()
    await settle()
    assert world.calls == [
        "hand over 1", "hand over 1", "close 1", "stop reading 1", "close 1", "stop reading 1"
    ]  # fmt: skip
    assert {tp.partition for tp in found._tasks} == {0}


class FakeStandbys:
    """Notes who is followed, and when."""

    def __init__(self, world: Surroundings) -> None:
        self.calls = world.calls

    def follow(self, numbers: Collection[int], served: Collection[int]) -> None:
        self.calls.append(f"follow {sorted(numbers)}, serve {sorted(served)}")

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.calls.append("stop standbys")


async def test_a_standby_gives_its_store_to_the_task_before_that_begins(
    world: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R127."""
    monkeypatch.setattr(assignment, "Standbys", lambda *_: FakeStandbys(world))
    found = await assigned(world, 0)
    await found.on_assigned(partitions(0), frozenset({1, 2}))
    await found.on_assigned(partitions(1), frozenset({0, 1, 2}))
    await settle()
    assert world.calls == [
        "follow [1, 2], serve [0]", "follow [0, 2], serve [1]", "start 1", "hand over 0"
    ]  # fmt: skip
    world.calls.clear()
    task_of(found, 0).fenced.set()
    await found.on_stop(is_orderly=False)
    assert "stop standbys" in world.calls


async def test_a_worker_says_what_it_has_on_its_disk(world: Surroundings, tmp_path: Path) -> None:
    """R127: also of what it has not opened since its start."""
    world.data_dir = tmp_path
    for name in ("partition-2", "partition-3", "partition-3.set-aside-1", "other"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (9, 9))
    (tmp_path / "partition-3" / "000004.log").touch()
    os.utime(tmp_path / "partition-3" / "000004.log", (7, 7))
    found = await assigned(world, 0)
    assert found.held() == {2: Held(0), 3: Held(0, 7_000)}
    follower: Any = found._followers[0]
    follower._offset = 5
    assert found.held() == {0: Held(5), 2: Held(0), 3: Held(0, 7_000)}


async def test_a_topic_that_appears_is_given_to_the_task(world: Surroundings) -> None:
    """It is not closed for that (R124)."""
    found = Assignment(world.context, FEEDS)
    await found.on_assigned(partitions(0, topics=(CONTROL, HOP)), NONE)
    await rebalance(found, partitions(0))
    assert world.calls == ["start 0", "give 0: app.control app.hop in"]
    batch: Any = SimpleNamespace(tp=TP("in", 0))
    found.offer(batch)
    assert task_of(found, 0).offered == [batch]


@pytest.mark.parametrize("members", [False, TimeoutError()], ids=["empty", "no answer"])
async def test_a_worker_that_stops_alone_closes_at_once(
    world: Surroundings, members: bool | Exception
) -> None:
    found = await assigned(world, 0)
    world.members = members
    await found.on_stop(is_orderly=True)
    assert world.calls == ["end membership", "leave", "close 0", "stop reading 0"]


async def test_a_worker_that_stops_serves_until_the_others_have_its_partitions(
    world: Surroundings,
) -> None:
    found = await assigned(world, 0)
    world.members = True
    leaving = task_of(found, 0)
    stopping = asyncio.ensure_future(found.on_stop(is_orderly=True))
    await settle()
    assert world.calls == ["end membership", "leave", "hand over 0"]
    leaving.fenced.set()
    await stopping
    assert world.calls == ["end membership", "leave", "hand over 0", "close 0", "stop reading 0"]


@pytest.mark.parametrize(
    "error", [None, IllegalStateError("stopped"), KafkaError("unexpected")], ids=str
)
async def test_a_worker_whose_client_does_not_end_its_membership_leaves_nevertheless(
    world: Surroundings, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If not, its partitions belong to nobody until its session ends: no worker removes it."""
    monkeypatch.setattr(assignment, "_END_TIMEOUT_S", 0)
    found = await assigned(world, 0)
    world.members, world.ending = True, error or asyncio.Event()
    task_of(found, 0).fenced.set()
    await found.on_stop(is_orderly=True)
    assert world.calls == ["end membership", "leave", "hand over 0", "close 0", "stop reading 0"]


async def test_a_worker_that_an_error_stops_closes_at_once(world: Surroundings) -> None:
    found = await assigned(world, 0)
    world.members = True
    await found.on_stop(is_orderly=False)
    assert world.calls == ["end membership", "leave", "close 0", "stop reading 0"]


async def test_topics_with_different_numbers_of_partitions_are_refused(world: Surroundings) -> None:
    found = Assignment(world.context, FEEDS)
    world.counts["in"] = 3
    with pytest.raises(NotCopartitioned, match="in has 3 partitions, and this application 4"):
        await found.on_assigned(partitions(0) | partitions(1, topics=(CONTROL, HOP)), NONE)
    world.counts["in"] = 5
    with pytest.raises(NotCopartitioned, match="has got more than the 4 partitions"):
        await found.on_assigned(partitions(0), NONE)


# --- other routes (R128) --------------------------------------------------------------------------


async def test_new_routes_change_what_the_worker_takes_part_with(world: Surroundings) -> None:
    found = await assigned(world, 0, 1)
    found.use_routes(1, Feeds(4, (IN, Feed("new", "{key}", False))))
    assert world.calls == ["topics app.control app.hop in new"]
    await rebalance(found, partitions(0, 1, topics=(*ALL, "new")))
    assert world.calls[1:] == [f"give {n}: app.control app.hop in new" for n in (0, 1)]


async def test_older_routes_change_nothing(world: Surroundings) -> None:
    """A partition that lags behind reports what it has taken up, too."""
    found = await assigned(world, 0)
    found.use_routes(2, FEEDS)
    for revision in (1, 2):
        found.use_routes(revision, Feeds(4, ()))
    assert world.calls == []
    assert found.topics == {*ALL}


async def test_a_topic_whose_route_was_removed_is_taken_from_the_task(world: Surroundings) -> None:
    found = await assigned(world, 0)
    found.use_routes(1, Feeds(4, ()))
    taken = ["stop reading 0", "give 0: app.control app.hop"]
    assert world.calls == ["topics app.control app.hop", *taken]
    batch: Any = SimpleNamespace(tp=TP("in", 0))
    found.offer(batch)
    assert task_of(found, 0).offered == []


async def test_a_partition_of_a_new_topic_is_left_out_if_its_home_is_elsewhere(
    world: Surroundings,
) -> None:
    """While not all members know the topic, the group gives it to those that do."""
    found = await assigned(world, 0)
    found.use_routes(1, Feeds(4, (IN, Feed("new", "{key}", False))))
    world.calls.clear()
    new = partitions(1, 2, topics=["new"])
    await rebalance(found, partitions(0) | new)
    assert world.calls == []
    assert {task.work.name for task in found.tasks} == {"partition 0"}


async def test_another_route_of_a_repartitioned_topic_has_another_task(world: Surroundings) -> None:
    found = await repartitioning(world)
    world.calls.clear()
    found.use_routes(7, Feeds(4, (IN, FAR._replace(queue="other"))))
    await settle()
    assert world.calls == ["close far/5", "stop reading 5", "start far/5"]
    names = {task.work.name for task in found.tasks}
    assert names == {"partition 0", "other of revision 7"}


async def test_a_worker_that_only_repartitions_uses_the_other_route_that_an_owner_has_learned_of(
    world: Surroundings,
) -> None:
    """The topics are the same, so only a rebalance tells it."""
    document = {"routes": [
        {"topic": "in", "queue": "{key}", "hop": "never"},
        {"topic": "far", "queue": "other", "hop": "always"},
    ]}  # fmt: skip
    other = feeds_of(document, 4)
    owner, third = (Assignment(world.context, Feeds(4, (IN, FAR))) for _ in range(2))
    await owner.on_assigned(partitions(0), NONE)
    await rebalance(third, FAR_5)
    assert [task.work.name for task in third.tasks] == ["far of revision 0"]
    world.newest = Configuration(7, document)
    rebalances = 0
    owner.use_routes(7, other)
    while world.rejoins > rebalances:  # ends: nobody joins twice for one revision
        rebalances = world.rejoins
        await owner.on_assigned(partitions(0), NONE)
        await rebalance(third, FAR_5)
    assert [task.work.name for task in third.tasks] == ["other of revision 7"]
    assert rebalances == 2


async def test_a_direct_route_with_another_queue_needs_no_rebalance(world: Surroundings) -> None:
    """Each partition has it from its own log."""
    found = await assigned(world, 0)
    found.use_routes(7, Feeds(4, (IN._replace(queue="q.{key}"),)))
    assert world.calls == []
    assert world.rejoins == 0


async def test_a_worker_that_takes_a_partition_over_reads_what_was_applied_until_that_is_open(
    world: Surroundings,
) -> None:
    """The dead owner may not have told it, and opening may take long."""
    world.newest = Configuration(
        7, {"routes": [{"topic": "far", "queue": "other", "hop": "always"}]}
    )
    world.trouble = RECOVERING
    found = await repartitioning(world)
    names = {task.work.name for task in found.tasks}
    assert names == {"partition 0", "other of revision 7"}
    assert world.readings == 1


@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_a_repartitioned_topic_without_a_route_is_read_no_more(
    is_handed_over: bool, world: Surroundings
) -> None:
    """Nobody opens it, so nobody would shut this worker out."""
    found = await repartitioning(world)
    world.calls.clear()
    if is_handed_over:
        await rebalance(found, partitions(0))
        assert world.calls == ["hand over far/5"]
    found.use_routes(1, FEEDS)
    await settle()
    assert {"close far/5", "stop reading 5"} <= {*world.calls}
    assert {task.work.name for task in found.tasks} == {"partition 0"}


@pytest.mark.parametrize("numbers", [(), (0,)], ids=["without partitions", "with one"])
async def test_a_worker_without_partitions_reads_what_was_applied_after_each_rebalance(
    numbers: tuple[int, ...], world: Surroundings
) -> None:
    """One that has partitions learns it from them."""
    document = {"routes": [{"topic": "new", "queue": "{key}"}]}
    world.newest = Configuration(3, document)
    found = await assigned(world, *numbers)
    assert world.readings == (0 if numbers else 1)
    assert ("new" in found.topics) is (not numbers)
    world.newest = Configuration(4, {"routes": []})
    await rebalance(found, partitions(*numbers))
    assert world.readings == (0 if numbers else 2)


async def looks(
    world: Surroundings, assigned: set[str], count: int, ids: dict[str, str] | None = None
) -> Mock:
    """Let an assignment look `count` times at the topics. Returns its task, which knows `ids`."""
    watched = Assignment(world.context, FEEDS)
    task = Mock(trouble="")
    task.work.topic_ids.return_value = ids or {}
    task.work.tps = {TP(topic, 0) for topic in assigned}
    watched._tasks = dict.fromkeys(task.work.tps, task)
    with patch.object(assignment, "_WATCH_S", 0):
        async with running(watched._watch_topics()):
            await until(lambda: world.looks > count)
    return task


@pytest.mark.parametrize(
    ("existing", "assigned"),
    [({CONTROL, HOP}, {CONTROL, HOP, "in"}), ({CONTROL, HOP, "in"}, {CONTROL, HOP})],
    ids=["deleted", "created"],
)
async def test_a_change_of_the_topics_that_the_group_has_missed_lets_it_be_rebalanced(
    existing: set[str], assigned: set[str]
) -> None:
    world = Surroundings(*existing)
    await looks(world, assigned, 0)
    assert world.rejoins == 0  # the Kafka client may still notice
    await looks(world, assigned, 3)
    assert world.rejoins >= 1


async def test_the_group_stays_while_the_topics_are_those_that_are_read() -> None:
    world = Surroundings(CONTROL, HOP, "in")
    await looks(world, {CONTROL, HOP, "in"}, 4)
    assert world.rejoins == 0


@pytest.mark.parametrize("topic", ["in", "app.changelog"])
async def test_a_topic_that_was_created_again_lets_its_partitions_be_opened_again(
    topic: str,
) -> None:
    """Opening refuses a new changelog; without that, more would be written to it."""
    world = Surroundings(CONTROL, HOP, "in", "app.changelog")
    assigned = {CONTROL, HOP, "in"}
    task = await looks(world, assigned, 1, {topic: f"id of {topic}"})
    assert not task.check_inputs.called
    task = await looks(world, assigned, 3, {topic: "an older id"})
    assert str(task.check_inputs.call_args.args[0]) == f"InputChanged: {topic} was created again"


class Processor:
    """A processor whose queue was full at offset 7, and accepts messages again."""

    def __init__(self, topic_id: str) -> None:
        self.paused_topics = {"in": "q"}
        self.positions = {"in": 7}
        self.inputs = {"in": SimpleNamespace(topic_id=topic_id)}
        self.accepts = False

    def accepts_sends(self, queue: str) -> bool:
        return self.accepts

    def why_paused(self, queue: str) -> str:
        return "full"

    def resume(self, topic: str) -> None:
        del self.paused_topics[topic]


async def resumed(world: Surroundings, processor: Any, after_s: float) -> None:
    pauses = InputPauses(0, processor, world.context)
    await pauses.update()
    world.now_s += after_s
    processor.accepts = True
    await pauses.update()


async def test_a_topic_that_was_created_again_while_it_was_paused_is_not_read_on() -> None:
    """R111: its records begin at offset 0 again."""
    world = Surroundings("in")
    with pytest.raises(InputChanged, match="in was created again"):
        await resumed(world, Processor("an older id"), 1.0)
    assert world.sought == []


@pytest.mark.parametrize(("after_s", "looks"), [(1.0, 1), (0.06, 1), (0.04, 0)])
async def test_a_topic_that_is_the_same_is_read_on(after_s: float, looks: int) -> None:
    """A queue that is full many times a second asks the brokers nothing."""
    world = Surroundings("in")
    await resumed(world, Processor("id of in"), after_s)
    assert world.sought == [(TP("in", 0), 7)]
    assert world.looks == looks
