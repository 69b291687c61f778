"""What a queue remembers of message groups is bounded, and so is the cost of a detach (R116)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.core.engine import Engine
from ringfaust.core.model import AckMode, Group
from ringfaust.core.state import State
from ringfaust.core.table import Key, Kind, Row
from tests.model.harness import DictStore, rows_of


class WatchedStore(DictStore):
    """Notes which tables are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[int] = set()

    def get(self, row: Row) -> Any | None:
        self.read.add(row[0])
        return super().get(row)

    def scan(self, kind: int, queue: str, part: Any, after: Key | None, most: int) -> list[Any]:
        self.read.add(kind)
        return super().scan(kind, queue, part, after, most)


class World:
    """One queue `q`, by default with `max_groups` 3."""

    def __init__(self, max_groups: int = 3) -> None:
        self.store = WatchedStore()
        self.catalog = Catalog({"q": {"max_groups": max_groups}}, {})
        self.reopen()
        self.sent = 0

    def reopen(self) -> None:
        self.state = State(self.store, self.catalog)
        self.engine = Engine(self.state)

    def do(self, command: c.Command) -> list[e.Effect]:
        step = self.engine.step(command, 1_000)
        assert step.refusal is None, step.refusal
        self.store.apply(rows_of(self.state.writes()))
        self.state.committed(1 << 20)
        return step.effects

    def send(self, group: str, **fields: object) -> str:
        """Send one message of a group; returns who got it."""
        self.sent += 1
        message = c.Send("q", f"m{self.sent}", 1_000, group=group, **fields)  # type: ignore[arg-type]
        given = [each for each in self.do(message) if isinstance(each, e.Dispatched)]
        return given[0].delivery.consumer if given else ""

    def rows(self, kind: Kind) -> dict[object, object]:
        return dict(self.store.scan(kind, "q", 0, None, 1_000_000))

    def attach(self, name: str, mode: AckMode = AckMode.NONE) -> None:
        self.do(c.Attach("q", name, 100, ack_mode=mode))


@pytest.fixture
def world() -> Iterator[World]:
    yield World()


def test_groups_without_a_message_are_forgotten_beyond_max_groups(world: World) -> None:
    world.attach("c1")
    for number in range(500):
        assert world.send(f"g{number}") == "c1"
    assert set(world.rows(Kind.GROUP)) == {"g497", "g498", "g499"}
    assert len(world.rows(Kind.IDLE_GROUP)) == 3


def test_a_remembered_group_keeps_its_owner_and_a_forgotten_one_finds_another(world: World) -> None:
    world.attach("c1")
    for group in ("g1", "g2", "g3"):
        world.send(group)
    world.attach("c2")
    assert world.send("g1") == "c1", "g2 and g3 are now the ones longest without a message"
    assert world.send("x") == "c2", "so g2 is forgotten"
    world.reopen()
    assert world.send("g3") == "c1", "what is remembered survives a restart"
    assert world.send("g2") == "c2", "a forgotten group has no owner"


def test_a_group_with_a_message_is_never_forgotten(world: World) -> None:
    world.attach("c1", AckMode.INDIVIDUAL)
    world.send("held")
    world.send("waits", due_ms=9_000)
    world.do(c.Attach("q", "c2", 100, priority=9, ack_mode=AckMode.NONE))
    for number in range(50):
        world.send(f"g{number}")
    assert world.send("held") == "c1"
    assert {"held", "waits"} < set(world.rows(Kind.GROUP))


def test_a_detach_visits_no_group() -> None:
    """It took 7.8 s for 60,000 groups that had no message: every row was read and deleted."""
    world = World(max_groups=100_000)
    world.attach("c1")
    for number in range(2_000):
        world.send(f"g{number}")
    before = world.rows(Kind.GROUP)
    world.store.read.clear()
    world.do(c.Detach("q", "c1"))
    assert not world.store.read & {Kind.GROUP, Kind.IDLE_GROUP}
    assert world.rows(Kind.GROUP) == before
    world.attach("c2")
    assert world.send("g0") == "c2"


def test_lowering_max_groups_forgets_two_at_a_time() -> None:
    world = World(max_groups=100)
    world.attach("c1")
    for number in range(100):
        world.send(f"g{number}")
    world.do(c.Configure("q", {"max_groups": 0}))
    assert len(world.rows(Kind.GROUP)) == 100
    for number in range(60):
        world.send(f"h{number}")
    assert len(world.rows(Kind.GROUP)) == 40
    for number in range(60):
        world.send(f"i{number}")
    assert world.rows(Kind.GROUP) == world.rows(Kind.IDLE_GROUP) == {}


def test_a_deleted_queue_leaves_no_group_behind(world: World) -> None:
    world.attach("c1", AckMode.INDIVIDUAL)
    world.send("g")
    world.attach("c2")
    world.send("h")
    world.do(c.Detach("q", "c1"))
    world.do(c.Detach("q", "c2"))
    world.do(c.DeleteQueue("q"))
    assert world.rows(Kind.GROUP) == world.rows(Kind.IDLE_GROUP) == {}


def test_groups_of_a_queue_from_before_they_were_counted(world: World) -> None:
    """Version 0.1.0 stored the owner alone: its messages are in no count, and nothing breaks."""
    world.attach("c1", AckMode.INDIVIDUAL)
    world.send("g")
    world.send("g")
    queue = world.store.get((Kind.QUEUE, "", 0, "q"))
    world.store.apply([((Kind.QUEUE, "", 0, "q"), queue._replace(groups=()))])
    world.store.apply([((Kind.GROUP, "q", 0, "g"), Group(1, 0))])
    world.reopen()
    world.do(c.Ack("q", "c1", "m1"))
    world.attach("c2", AckMode.INDIVIDUAL)
    assert world.send("g") == "c1"
    assert world.rows(Kind.GROUP) == {"g": Group(1, 1)}
    world.do(c.Ack("q", "c1", "m2"))
    world.do(c.Ack("q", "c1", "m3"))
    assert world.rows(Kind.GROUP) == {"g": Group(1, 0, 2)}
    assert world.send("g") == "c1"


class Unsearched(dict[str, Any]):
    def values(self) -> Any:
        raise AssertionError("a search among all consumers")


def test_the_owner_of_a_group_is_found_without_a_search() -> None:
    """5,000 messages of the group of the last of 7,000 consumers took 1 s."""
    state = State(DictStore(), Catalog({"q": {}}, {}))
    engine = Engine(state)
    for name in ("a", "b"):
        engine.step(c.Attach("q", name, 1), 1)
    queue = state.queues["q"]
    last = queue.consumers["b"]
    queue.consumers = Unsearched(queue.consumers)
    assert queue.owner_of(Group(last.order, 1)) is last
    assert queue.owner_of(Group(last.order + 1, 1)) is None
