"""Workers with other settings are refused (R113)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.agreement import fingerprint
from ringfaust.kafka.admin import GroupDescription, GroupMember
from ringfaust.kafka.names import worker_protocol
from ringfaust.worker.faust import group as groups
from ringfaust.worker.faust.group import DifferentSettings, check_group, remove_from_group
from ringfaust.worker.faust.transport import BatchApp

ROUTES = [{"topic": "a", "queue": "{key}"}, {"topic": "b", "queue": "b"}]
QUEUES: dict[str, Any] = {"routes": ROUTES, "queues": {"#": {"ring_size": 3}, "b": {}}}
MINE = worker_protocol("aaaa")


def print_of(queues: dict[str, Any] | None = None, **worker: Any) -> str:
    return fingerprint(WorkerConfig(**worker), QueuesConfig(**{**QUEUES, **(queues or {})}))


@pytest.mark.parametrize(
    ("queues", "worker"),
    [
        ({"routes": ROUTES[:1]}, {}),
        ({"routes": [ROUTES[0], {**ROUTES[1], "hop": "never"}]}, {}),
        ({"queues": {"#": {"ring_size": 4}, "b": {}}}, {}),
        ({"queues": {"#": {"ring_size": 3}, "b": {}, "c": {}}}, {}),
        ({"addresses": {"prices": {"retroactive_count": 2}}}, {}),
        ({"settings": {"#": {"ring_size": 9}}}, {}),
        ({}, {"partitions": 5}),
        ({}, {"clock": "log"}),
    ],
)
def test_settings_that_must_agree_change_the_fingerprint(
    queues: dict[str, Any], worker: dict[str, Any]
) -> None:
    assert print_of(queues, **worker) != print_of()


def test_a_fingerprint_is_the_same_in_every_version() -> None:
    """Workers of two versions form one group only if it is (R129): never change this text."""
    assert print_of() == "c9b45220cd9a"


def test_what_changes_nothing_changes_no_fingerprint(tmp_path: Any) -> None:
    always = [ROUTES[0], {**ROUTES[1], "hop": "always"}]
    assert print_of({"routes": list(reversed(always))}) == print_of()
    assert print_of({"queues": {"b": {}, "#": {"ring_size": 3}}}) == print_of()
    assert print_of(data_dir=tmp_path, batch_records=7, log_level="debug") == print_of()


def test_the_brokers_compare_the_name_of_the_protocol() -> None:
    assert BatchApp("app", protocol=MINE).assignor.name == MINE


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[GroupDescription]:
    """What the brokers answer about the group, in turn; the last one again and again."""
    waiting: list[GroupDescription] = []

    class FakeAdmin:
        async def group(self, name: str) -> GroupDescription:
            assert name == "app"
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    @asynccontextmanager
    async def open_fake(_: object) -> AsyncIterator[FakeAdmin]:
        yield FakeAdmin()

    monkeypatch.setattr(groups, "open_admin", open_fake)
    monkeypatch.setattr(groups, "_ASK_AGAIN_S", 0.0)
    return waiting


THERE = [GroupMember("faust-1", "10.0.0.7")]
OTHER = GroupDescription(worker_protocol("bbbb"), THERE)


async def check() -> None:
    await check_group(WorkerConfig(application="app", session_timeout_ms=1_000), "aaaa")


@pytest.mark.parametrize(
    "found",
    [
        GroupDescription("", []),  # no such group
        GroupDescription(MINE, THERE),
        GroupDescription("", THERE),  # a rebalance: the brokers compare the protocols
    ],
)
async def test_a_group_without_other_settings_may_be_joined(
    answers: list[GroupDescription], found: GroupDescription
) -> None:
    answers.append(found)
    await check()


async def test_a_killed_worker_with_the_old_settings_is_waited_for(
    answers: list[GroupDescription],
) -> None:
    answers += [OTHER, OTHER, GroupDescription("", [])]
    await check()


async def test_workers_with_other_settings_are_named(
    answers: list[GroupDescription], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.append(OTHER)
    monkeypatch.setattr(groups.time, "monotonic", iter(range(10_000)).__next__)
    with pytest.raises(DifferentSettings) as refused:
        await check()
    text = str(refused.value)
    assert "group app have other settings: faust-1 at 10.0.0.7 has ringfaust-bbbb" in text
    assert "this worker has ringfaust-aaaa" in text
    assert "start this worker with the old one and run `ringfaust apply`" in text


async def test_who_removes_a_dead_worker_joins_the_rebalance_at_once() -> None:
    """With its next heartbeat it would learn of the rebalance, too, but later (R126)."""
    done: list[str] = []

    class Asked:
        async def ask(self, _: object) -> None:
            done.append("removed")

    clients: Any = Asked()
    await remove_from_group(clients, "group", "dead", lambda: done.append("joined again"))
    assert done == ["removed", "joined again"]
