"""An operator's connection to two partitions: the worker's own processors, without a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfaust.client import Admin, BadArgument, Refused, RingProducer
from ringfaust.client.connection import Connection
from ringfaust.protocol.records import Role
from ringfaust.testing import MemoryBroker
from tests.processor.test_replies import Bench as Partition


class Joined(Connection):
    """A connection to two processors."""

    def __init__(self) -> None:
        super().__init__({})
        self.partitions = frozenset({0, 1})
        self.processors = (Partition(), Partition())
        self.commands: list[tuple[str, int]] = []
        """What was asked of which partition."""

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Nothing is open."""

    async def write_command(self, partition: int, raw: bytes) -> None:
        self.commands.append((json.loads(raw)["type"], partition))
        processor = self.processors[partition]
        processor.take("control", raw)
        processor.replies()
        for key, value, _ in processor.out.get((Role.REPLIES, None), []):
            self._take_reply(key or b"", json.loads(value or b""))

    def asked(self, kind: str) -> list[int]:
        """The partitions of which it was asked."""
        return [partition for each, partition in self.commands if each == kind]


@pytest.fixture
def joined() -> Joined:
    return Joined()


@pytest.fixture
def admin(joined: Joined) -> Admin:
    made = Admin()
    made.connection = joined
    return made


async def test_a_queue_that_comes_to_stand_in_a_second_partition_is_seen(
    joined: Joined, admin: Admin
) -> None:
    joined.processors[0].send("q", "a")
    assert [each.partition for each in await admin.homes("q")] == [0]
    for message in ("b", "c"):
        joined.processors[1].send("q", message)
    assert [(each.partition, each.also_in) for each in await admin.homes("q")] == [
        (1, (0,)), (0, (1,)),
    ]  # fmt: skip
    assert [each.id async for each in admin.browse("q")] == ["b", "c", "a"]
    await admin.configure("q", {"ring_size": 7})
    assert [each.settings["ring_size"] for each in await admin.homes("q")] == [7, 7]
    await admin.purge("q")
    assert [each.counts["ready"] for each in await admin.homes("q")] == [0, 0]


async def test_a_pattern_is_no_queue() -> None:
    """An operator who paused or purged it was told that it was done, and no queue was."""
    queues = {"routes": [{"topic": "in", "queue": "by.{key}"}], "queues": {"by.*": {}}}
    with MemoryBroker(queues, partitions=2) as broker:
        where = {"bootstrap_servers": broker.bootstrap_servers}
        async with Admin(**where) as admin, RingProducer(**where) as producer:
            await producer.send("in", "x", key="eu")
            for act in (admin.pause, admin.resume, admin.purge, admin.delete_queue, admin.queue):
                with pytest.raises(Refused, match=r"unknown_queue 'by\.\*'"):
                    await act("by.*")
            assert [each.queue for each in await admin.queues()] == ["by.eu"]
            await producer.send("in", "x", key="*")  # a name may look like one
            await admin.pause("by.*")
            assert (await admin.queue("by.*")).paused == ("dispatch",)


@pytest.mark.parametrize("partition", ["x", "9" * 5_000, "in/" + "9" * 5_000])
async def test_an_order_to_what_is_no_partition_is_refused(admin: Admin, partition: str) -> None:
    with pytest.raises(Refused, match="a partition is a number, or TOPIC/NUMBER"):
        await admin.retry_partition(partition)


async def test_a_queue_that_another_operator_moves_is_found_again(
    joined: Joined, admin: Admin
) -> None:
    joined.processors[0].say("create_queue", queue="made", settings={})
    joined.processors[0].send("made", "a")
    assert (await admin.queue("made")).partition == 0
    joined.processors[0].say("delete_queue", queue="made")
    joined.processors[1].say("create_queue", queue="made", settings={})
    assert (await admin.queue("made")).partition == 1
    await admin.pause("made")
    assert (await admin.queue("made")).paused == ("dispatch",)


@pytest.fixture
def split(joined: Joined) -> Joined:
    """A queue in both partitions, and one message id in both of them."""
    for message in ("in-0", "in-both", "last"):
        joined.processors[0].send("q", message)
    for message in ("in-1", "in-both"):
        joined.processors[1].send("q", message)
    return joined


async def ready(admin: Admin) -> dict[int, list[str]]:
    """The ready messages by partition."""
    return {
        partition: [
            each.id for each in (await admin.browse_page("q", partition=partition)).messages
        ]
        for partition in (0, 1)
    }


async def test_one_message_is_removed_once(split: Joined, admin: Admin) -> None:
    await admin.remove("q", "in-1")
    await admin.remove("q", "in-both")
    assert await ready(admin) == {0: ["in-0", "last"], 1: ["in-both"]}


async def test_one_message_is_moved_once(split: Joined, admin: Admin) -> None:
    await admin.move("q", "in-both", "strict")
    assert await ready(admin) == {0: ["in-0", "last"], 1: ["in-1", "in-both"]}
    assert split.asked("move") == [0]


async def test_what_all_partitions_refuse_is_said_of_each(split: Joined, admin: Admin) -> None:
    with pytest.raises(Refused, match="no ready or scheduled message has that id") as caught:
        await admin.remove("q", "nothing")
    assert "partition" not in caught.value.text
    split.processors[1].say("create_queue", queue="other", settings={})
    with pytest.raises(Refused) as caught:
        await admin.move("q", "in-0", "other")
    assert (caught.value.reason, caught.value.about) == ("unknown_queue", "other")
    assert "in partition 0: " in caught.value.text
    assert "in partition 1: no ready or scheduled message has that id" in caught.value.text


async def test_the_oldest_messages_move_within_their_own_partitions(
    split: Joined, admin: Admin
) -> None:
    for each in split.processors:
        each.say("create_queue", queue="other", settings={})
    assert [moved async for moved in admin.move_oldest("q", "other", 4)] == [0, 4]
    assert await ready(admin) == {0: [], 1: ["in-both"]}
    assert split.asked("move") == [0, 0, 0, 1]


async def test_a_partition_that_does_not_know_the_target_is_reported(
    split: Joined, admin: Admin
) -> None:
    split.processors[0].say("create_queue", queue="other", settings={})
    with pytest.raises(Refused, match="unknown_queue 'other'"):
        [moved async for moved in admin.move_oldest("q", "other", 4)]
    assert await ready(admin) == {0: [], 1: ["in-1", "in-both"]}


async def test_a_queue_that_one_partition_does_not_delete_is_reported(
    split: Joined, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = split.write_command

    async def refuse(partition: int, raw: bytes) -> None:
        asked: dict[str, Any] = json.loads(raw)
        if (asked["type"], partition) != ("delete_queue", 1):
            await write(partition, raw)
            return
        body = {"ok": False, "reason": "too_large", "about": "q", "text": "it holds too much"}
        split._take_reply(asked["reply"].encode(), body)

    monkeypatch.setattr(split, "write_command", refuse)
    with pytest.raises(Refused, match="it holds too much"):
        await admin.delete_queue("q")


async def test_a_consumer_is_closed_where_it_is_attached(split: Joined, admin: Admin) -> None:
    split.processors[1].say("attach", queue="q", consumer="me", credit=1)
    await admin.close_consumer("q", "me")
    assert split.asked("detach") == [1]
    with pytest.raises(Refused, match="no consumer of that name is attached"):
        await admin.close_consumer("q", "me")


@pytest.mark.parametrize("partition", [2, -1])
async def test_a_partition_that_does_not_exist_is_named(admin: Admin, partition: int) -> None:
    with pytest.raises(BadArgument, match=f"partition {partition} does not .* from 0 to 1"):
        await admin.browse_page("q", partition=partition)
    with pytest.raises(BadArgument, match="does not exist"):
        await admin.create_queue("q", partition=partition)
