"""While a queue's pulling is paused its records stay where they are, and so does what follows."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import Headers, OutRecord
from ringfaust.protocol.routes import Route
from ringfaust.protocol.stored_rows import read_positions


class Record(NamedTuple):
    topic: str
    offset: int
    value: bytes | None
    headers: Headers = ()
    partition: int = 0
    timestamp: int = 0
    timestamp_type: int = 0
    key: bytes | None = None


class Rig:
    """A road, the topics that lead to it, and a host that goes back to positions when told so."""

    def __init__(self) -> None:
        self.store = MemoryKeyValue()
        self.logs: dict[str, list[Record]] = {}
        self.now_ms = 1_000
        self.open()

    def open(self) -> None:
        shared = ProcessorConfig(
            control_topic="control", repartition_topic="hop",
            routes=[Route("in", "{header:to}"), Route("side", "{header:to}")],
            max_record_bytes=1_000, log_is_clock=False,
        )  # fmt: skip
        state = State(ByteStore(self.store), Catalog({"slow": {}, "fast": {}}, {}))
        positions = read_positions(self.store.get(b"\0positions"))
        self.road: Processor[list[OutRecord]] = Processor(shared, state, positions, list)

    def write(self, topic: str, value: bytes, headers: Headers = ()) -> Record:
        log = self.logs.setdefault(topic, [])
        log.append(Record(topic, len(log), value, headers))
        return log[-1]

    def send(self, message: str, to: str, topic: str = "in", **more: str) -> Record:
        ours = {"to": to, "ringfaust-queue": to, "ringfaust-id": message, **more}
        return self.write(topic, b"", tuple((name, text.encode()) for name, text in ours.items()))

    def say(self, kind: str, queue: str, **fields: Any) -> Record:
        return self.write("control", json.dumps({"type": kind, "queue": queue, **fields}).encode())

    def take(self, *records: Record) -> None:
        self.road.take(records, self.now_ms)
        self.store.apply(self.road.writes().store)
        self.road.state.committed(1 << 20)

    def go_on(self, topic: str) -> None:
        """As the host does: go back to the position, and read on."""
        del self.road.paused_topics[topic]
        self.take(*self.logs[topic][self.road.positions[topic] :])

    def ready(self, queue: str) -> list[str]:
        found = self.road.state.queue(queue)
        assert found is not None
        return [message.id for message in found.in_order()]


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.take(rig.send("a", "slow"), rig.say("pause", "slow", what="pulling"))
    return rig


@pytest.mark.parametrize("topic", ["side", "hop"])
def test_its_topic_stands_still_and_the_others_go_on(rig: Rig, topic: str) -> None:
    records = [rig.send("b", "slow", topic), rig.send("c", "fast", topic)]
    rig.take(*records, rig.send("d", "fast"), rig.say("list", "slow", reply="me"))
    assert rig.road.paused_topics == {topic: "slow"}
    assert rig.road.positions == {"in": 2, "control": 2, topic: 0}
    assert (rig.ready("slow"), rig.ready("fast")) == (["a"], ["d"])


def test_what_follows_a_blocked_record_is_never_taken_out_of_turn(rig: Rig) -> None:
    """In the same batch as the resume, in a later one, before and after: the host goes back."""
    blocked, behind = rig.send("b", "slow"), rig.send("c", "fast")
    rig.take(blocked)
    rig.take(behind, rig.say("resume", "slow", what="pulling"), rig.send("d", "slow"))
    assert rig.road.accepts_sends("slow")
    rig.take(rig.send("e", "slow"))
    assert (rig.ready("slow"), rig.ready("fast"), rig.road.positions["in"]) == (["a"], [], 1)
    rig.go_on("in")
    assert (rig.ready("slow"), rig.ready("fast")) == (["a", "b", "d", "e"], ["c"])
    assert rig.road.positions["in"] == 5
    rig.take(blocked, behind)
    assert rig.ready("slow") == ["a", "b", "d", "e"], "repeats do nothing"


def test_the_next_paused_queue_blocks_in_turn(rig: Rig) -> None:
    rig.take(rig.say("pause", "fast", what="pulling"))
    rig.take(rig.send("b", "slow"), rig.send("c", "fast"), rig.send("d", "slow"))
    rig.take(rig.say("resume", "slow", what="pulling"))
    rig.go_on("in")
    assert rig.road.paused_topics == {"in": "fast"}
    assert (rig.ready("slow"), rig.ready("fast")) == (["a", "b"], [])


def test_it_is_found_again_after_a_crash(rig: Rig) -> None:
    rig.take(rig.send("b", "slow"), rig.send("c", "fast"))
    rig.open()
    assert rig.road.paused_topics == {}
    position = rig.road.positions["in"]
    assert position == 1
    rig.take(*rig.logs["in"][position:])
    assert rig.road.paused_topics == {"in": "slow"}
    rig.take(rig.say("resume", "slow", what="pulling"))
    rig.go_on("in")
    assert (rig.ready("slow"), rig.ready("fast")) == (["a", "b"], ["c"])


def test_a_deleted_queue_blocks_nobody(rig: Rig) -> None:
    rig.take(rig.say("create_queue", "new", settings={}), rig.say("pause", "new", what="pulling"))
    rig.take(rig.send("b", "new"), rig.say("delete_queue", "new"))
    assert rig.road.paused_topics == {"in": "new"}
    assert rig.road.accepts_sends("new")
    rig.go_on("in")
    assert rig.road.state.queue("new") is None, "what came was refused"
    assert rig.road.positions["in"] == 2
    rig.take(rig.send("c", "slow", "side"), rig.say("delete_queue", "slow"))
    rig.go_on("side")
    assert rig.ready("slow") == ["c"], "queues.yaml declares it, so it was made anew"


def test_time_and_settles_go_on(rig: Rig) -> None:
    rig.take(rig.say("resume", "slow", what="pulling"))
    rig.take(rig.send("b", "slow", **{"ringfaust-delay-ms": "500"}))
    rig.take(rig.say("pause", "slow", what="pulling"), rig.send("c", "slow"))
    rig.take(rig.say("attach", "slow", consumer="me", credit=1))
    assert rig.ready("slow") == []
    rig.now_ms += 500
    rig.road.tick(rig.now_ms)
    assert rig.ready("slow") == ["b"]
    rig.take(rig.say("ack", "slow", consumer="me", message="a"))
    found = rig.road.state.queue("slow")
    assert found is not None
    counts = found.counts
    assert (counts.acked, counts.delivering, counts.added) == (1, 1, 2)


def test_what_cannot_be_read_is_of_no_queue_and_waits_for_none(rig: Rig) -> None:
    rig.take(rig.send("b", "slow", **{"ringfaust-priority": "much"}))
    assert (rig.road.paused_topics, rig.road.positions["in"]) == ({}, 2)


def test_paused_dispatch_blocks_nothing(rig: Rig) -> None:
    rig.take(rig.say("pause", "fast", what="dispatch"), rig.send("b", "fast"))
    assert (rig.road.paused_topics, rig.ready("fast")) == ({}, ["b"])


def test_gaps_of_the_log_are_no_matter(rig: Rig) -> None:
    """Transaction markers and compaction leave offsets that no record has."""
    rig.take(rig.send("b", "slow")._replace(offset=7), rig.send("c", "slow")._replace(offset=9))
    assert rig.road.positions["in"] == 7
    rig.take(rig.say("resume", "slow", what="pulling"))
    del rig.road.paused_topics["in"]
    rig.take(*(rig.logs["in"][n]._replace(offset=at) for n, at in ((1, 7), (2, 9))))
    assert (rig.ready("slow"), rig.road.positions["in"]) == (["a", "b", "c"], 10)


# --- full queues ----------------------------------------------------------------------------------


@pytest.fixture
def full() -> Rig:
    """Two of three that `slow` may hold, in one topic with `fast`."""
    rig = Rig()
    rig.take(rig.say("configure", "slow", settings={"max_messages": 2, "when_full": "block"}))
    rig.take(rig.send("a", "slow"), rig.send("b", "slow"), rig.send("c", "slow"))
    return rig


def test_a_full_queue_blocks_its_topic_and_no_other(full: Rig) -> None:
    assert full.road.paused_topics == {"in": "slow"}
    full.take(full.send("d", "fast"), full.send("e", "fast", "side"))
    assert (full.ready("slow"), full.ready("fast")) == (["a", "b"], ["e"])
    assert full.road.positions["in"] == 2
    full.take(full.say("remove", "slow", message="a"))
    assert full.road.accepts_sends("slow")
    full.go_on("in")
    assert (full.ready("slow"), full.ready("fast")) == (["b", "c"], ["e", "d"])
    assert full.road.paused_topics == {}


def test_after_a_restart_it_is_still_full(full: Rig) -> None:
    full.open()
    assert full.road.paused_topics == {}
    full.take(*full.logs["in"])
    assert full.road.paused_topics == {"in": "slow"}
    assert full.ready("slow") == ["a", "b"]


def test_what_an_operator_moves_comes_in_all_the_same(full: Rig) -> None:
    full.take(full.send("m", "fast", "side"), full.say("move", "fast", message="m", to="slow"))
    assert full.ready("slow") == ["a", "b", "m"]
