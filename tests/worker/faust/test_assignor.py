"""What the members of the group say of their state, and what the leader answers (R127)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from faust.assignor.partition_assignor import PartitionAssignor

from ringfaust import __version__
from ringfaust.core import levels
from ringfaust.worker.faust.assignor import Assignor
from ringfaust.worker.faust.shares import Held
from ringfaust.worker.faust.transport import BatchApp

COUNTS = {"control": 2, "in": 2, "far": 3}
CLUSTER = SimpleNamespace(partitions_for_topic=lambda topic: {*range(COUNTS.get(topic, 0))} or None)
TOPICS = {*COUNTS, "missing"}


class Worker:
    """A member of the group, with its state."""

    def __init__(self, held: Mapping[int, Held], *, takes_standbys: bool = True) -> None:
        self.app = BatchApp("app")
        self.app.holdings = self
        self.topics, self.home_topic = frozenset(TOPICS), "control"
        self.stored_topics = frozenset({"control", "in"})
        self.takes_standbys = takes_standbys
        self.level = 1
        self.held = lambda: held
        self.assignor: Any = self.app.assignor

    def joins(self) -> ConsumerProtocolMemberMetadata:
        """What it says when it joins, as it arrives."""
        said = self.assignor.metadata(TOPICS)
        return ConsumerProtocolMemberMetadata(said.version, said.subscription, said.user_data)

    @property
    def serves(self) -> set[tuple[str, int]]:
        return {*self.assignor.assigned_actives()}


def rebalance(**workers: Worker) -> None:
    """The first one leads."""
    leader = next(iter(workers.values()))
    answers = leader.assignor.assign(CLUSTER, {n: each.joins() for n, each in workers.items()})
    for name, worker in workers.items():
        worker.assignor.on_assignment(answers[name])


def test_two_workers_are_the_standbys_of_each_other_and_keep_what_they_have() -> None:
    a, b = Worker({}), Worker({1: Held(50)})
    for _ in range(3):
        rebalance(a=a, b=b)
        assert {tp for tp in a.serves if tp[0] != "far"} == {("control", 0), ("in", 0)}
        assert {tp for tp in b.serves if tp[0] != "far"} == {("control", 1), ("in", 1)}
        assert (a.assignor.standbys, b.assignor.standbys) == ({1}, {0})
    far = [{tp for tp in each.serves if tp[0] == "far"} for each in (a, b)]
    assert sorted(map(len, far)) == [1, 2]
    assert not far[0] & far[1]


def test_a_member_with_other_topics_has_those_of_its_partitions() -> None:
    """R128: while routes change. Nothing moves because of that."""
    a, b = Worker({0: Held(5), 1: Held(5)}), Worker({0: Held(5), 1: Held(5)})
    b.topics = frozenset({"control"})
    a.topics = b.topics | {"in"}
    for _ in range(2):
        rebalance(a=a, b=b)
        assert a.serves == {("control", 0), ("in", 0)}
        assert b.serves == {("control", 1)}
    b.topics = a.topics
    rebalance(b=b, a=a)
    assert a.serves == {("control", 0), ("in", 0)}
    assert b.serves == {("control", 1), ("in", 1)}
    assert (a.assignor.standbys, b.assignor.standbys) == ({1}, {0})


def test_one_alone_has_everything_and_follows_nothing() -> None:
    a = Worker({})
    rebalance(a=a)
    assert len(a.serves) == sum(COUNTS.values())
    assert a.assignor.standbys == frozenset()


def test_a_member_of_an_older_version_understands_the_others_and_is_understood() -> None:
    """It has Faust's own assignor, and may lead."""
    a, b = Worker({}), Worker({})
    old: Any = PartitionAssignor(BatchApp("app"))  # type: ignore[abstract]
    said = {"a": a.joins(), "old": old.metadata(TOPICS)}
    answers = a.assignor.assign(CLUSTER, said)
    old.on_assignment(answers["old"])
    a.assignor.on_assignment(answers["a"])
    assert a.assignor.standbys == {tp.partition for tp in old.assigned_actives() if tp[0] == "in"}
    answers = old.assign(CLUSTER, {"b": b.joins(), "old": old.metadata(TOPICS)})
    b.assignor.on_assignment(answers["b"])
    assert b.serves
    assert b.assignor.standbys == frozenset()


@pytest.mark.parametrize("takes", [True, False])
def test_what_is_said_is_part_of_what_fausts_assignor_says(takes: bool) -> None:
    worker = Worker({3: Held(7, 9)}, takes_standbys=takes)
    said = json.loads(worker.joins().user_data)
    assert said["ringfaust"] == {
        "standby": int(takes), "has": {"3": [7, 9]}, "version": __version__, "level": 1,
        "newest_level": levels.NEWEST,
    }  # fmt: skip
    assert said["assignment"] == {"actives": {}, "standbys": {}}


def test_who_is_too_old_for_the_level_in_use_gets_nothing_and_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R129. Version 0.2.0 says nothing of levels, and supports the first one."""
    a, b, old = Worker({}), Worker({}), Worker({0: Held(90)})
    said = {"a": a.joins(), "b": b.joins(), "old": _of_0_2_0(old)}
    before = a.assignor.assign(CLUSTER, said)
    assert all(dict(each.assignment) for each in before.values()), "level 1: all can read it"
    b.level = 2  # any member may know; the leader need not
    said = {"a": a.joins(), "b": b.joins(), "old": _of_0_2_0(old)}
    answers = a.assignor.assign(CLUSTER, said)
    assert dict(answers["old"].assignment) == {}
    given = [*answers["a"].assignment, *answers["b"].assignment]
    assert sum(len(numbers) for _, numbers in given) == sum(COUNTS.values())
    old.assignor.on_assignment(answers["old"])
    assert (old.serves, old.assignor.standbys) == (set(), frozenset())
    assert "worker old (ringfaust 0.2.0 or older) is too old and gets no partitions" in caplog.text


def _of_0_2_0(worker: Worker) -> ConsumerProtocolMemberMetadata:
    plain = worker.joins()
    said = json.loads(plain.user_data)
    said["ringfaust"] = {name: said["ringfaust"][name] for name in ("standby", "has")}
    return ConsumerProtocolMemberMetadata(
        plain.version, plain.subscription, json.dumps(said).encode()
    )


def test_these_methods_are_the_ones_that_the_kafka_client_calls() -> None:
    """If not: `Assignor` no longer replaces Faust's shares."""
    assert {"assign", "metadata", "on_assignment", "name", "version"} <= {
        *AbstractPartitionAssignor.__abstractmethods__, "version",
    }  # fmt: skip
    assert isinstance(BatchApp("app").assignor, Assignor)
