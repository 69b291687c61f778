"""What a worker does about topics that are deleted or created while nobody reads them (R111)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from faust.types import TP

from ringfaust.kafka.topic_ids import TopicIds
from ringfaust.protocol.records import Role
from ringfaust.worker import assignment
from ringfaust.worker.assignment import Assignment
from ringfaust.worker.interfaces import InputChanged
from ringfaust.worker.partition.pausing import InputPauses

CONTROL, HOP = "app.control", "app.hop"


class Surroundings:
    """A context: the topics that exist, a clock, and a reader that notes its calls."""

    def __init__(self, *existing: str) -> None:
        self.existing = set(existing)
        self.looks = 0
        self.rejoins = 0
        self.now_s = 0.0
        self.sought: list[tuple[TP, int]] = []
        self.clock = SimpleNamespace(monotonic_s=lambda: self.now_s)
        self.topics = {Role.CONTROL: CONTROL, Role.HOP: HOP, Role.CHANGELOG: "app.changelog"}
        self.processor_config = SimpleNamespace(routes=[SimpleNamespace(topic="in")])
        self.reader = lambda: self
        self.context: Any = self

    async def topic_ids(self, names: Collection[str]) -> TopicIds:
        self.looks += 1
        return TopicIds("cluster", {name: f"id of {name}" for name in self.existing & {*names}})

    def rejoin(self) -> None:
        self.rejoins += 1

    def pause_until_seek(self, tp: TP) -> None:
        """Nothing to note."""

    async def seek(self, tp: TP, offset: int) -> None:
        self.sought.append((tp, offset))


async def looks(
    world: Surroundings, assigned: set[str], count: int, ids: dict[str, str] | None = None
) -> Mock:
    """Let an assignment look `count` times at the topics. Returns its task, which knows `ids`."""
    watched = Assignment(world.context, [])
    task = Mock(trouble="")
    task.work.topic_ids.return_value = ids or {}
    watched._tasks = {TP(topic, 0): task for topic in assigned}
    watching = asyncio.ensure_future(watched._watch_topics())
    async with asyncio.timeout(30):
        while world.looks <= count:
            await asyncio.sleep(0)
    watching.cancel()
    return task


@pytest.mark.parametrize(
    ("existing", "assigned"),
    [({CONTROL, HOP}, {CONTROL, HOP, "in"}), ({CONTROL, HOP, "in"}, {CONTROL, HOP})],
    ids=["deleted", "created"],
)
async def test_a_change_of_the_topics_that_the_group_has_missed_lets_it_be_rebalanced(
    existing: set[str], assigned: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "_WATCH_S", 0)
    world = Surroundings(*existing)
    await looks(world, assigned, 0)
    assert world.rejoins == 0  # the Kafka client may still notice
    await looks(world, assigned, 3)
    assert world.rejoins >= 1


async def test_the_group_stays_while_the_topics_are_those_that_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment, "_WATCH_S", 0)
    world = Surroundings(CONTROL, HOP, "in")
    await looks(world, {CONTROL, HOP, "in"}, 4)
    assert world.rejoins == 0


@pytest.mark.parametrize("topic", ["in", "app.changelog"])
async def test_a_topic_that_was_created_again_lets_its_partitions_be_opened_again(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening refuses a new changelog; without that, more would be written to it."""
    monkeypatch.setattr(assignment, "_WATCH_S", 0)
    world = Surroundings(CONTROL, HOP, "in", "app.changelog")
    assigned = {CONTROL, HOP, "in"}
    task = await looks(world, assigned, 1, {topic: f"id of {topic}"})
    assert not task.check_inputs.called
    task = await looks(world, assigned, 3, {topic: "an older id"})
    task.check_inputs.assert_called_with(f"{topic} was created again")


class Processor:
    """A processor whose queue was full at offset 7, and accepts messages again."""

    def __init__(self, topic_id: str) -> None:
        self.paused_topics = {"in": "q"}
        self.positions = {"in": 7}
        self.inputs = {"in": SimpleNamespace(topic_id=topic_id)}
        self.accepts = False

    def accepts_sends(self, queue: str) -> bool:
        return self.accepts

    def is_paused(self, queue: str) -> bool:
        return False


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
