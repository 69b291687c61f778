"""While a queue's pulling is paused its records stay where they are, and so does what follows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord, Headers, OutRecord
from ringfaust.protocol.routes import Route
from ringfaust.protocol.stored_rows import read_positions
from tests.records import new_record


class Harness:
    """A processor, its input topics, and a host that seeks back when asked to."""

    def __init__(self) -> None:
        self.store = MemoryKeyValue()
        self.logs: dict[str, list[FetchedRecord]] = {}
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
        self.processor: Processor[list[OutRecord]] = Processor(shared, state, positions, list)

    def write(self, topic: str, value: bytes, headers: Headers = ()) -> FetchedRecord:
        log = self.logs.setdefault(topic, [])
        log.append(new_record(topic, len(log), value, headers))
        return log[-1]

    def send(self, message: str, to: str, topic: str = "in", **more: str) -> FetchedRecord:
        ours = {"to": to, "ringfaust-queue": to, "ringfaust-id": message, **more}
        return self.write(topic, b"", tuple((name, text.encode()) for name, text in ours.items()))

    def say(self, kind: str, queue: str, **fields: Any) -> FetchedRecord:
        return self.write("control", json.dumps({"type": kind, "queue": queue, **fields}).encode())

    def take(self, *records: FetchedRecord) -> None:
        self.processor.take(records, self.now_ms)
        self.processor.outputs()
        self.store.apply(self.processor.writes().store)
        self.processor.committed(1 << 20)

    def go_on(self, topic: str) -> None:
        """As the host does: go back to the position, and read on."""
        self.processor.resume(topic)
        self.take(*self.logs[topic][self.processor.positions[topic] :])

    def ready(self, queue: str) -> list[str]:
        found = self.processor.state.queue(queue)
        assert found is not None
        return [message.id for message in found.in_order()]


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.take(harness.send("a", "slow"), harness.say("pause", "slow", what="pulling"))
    return harness


@pytest.mark.parametrize("topic", ["side", "hop"])
def test_its_topic_waits_and_the_others_continue(harness: Harness, topic: str) -> None:
    records = [harness.send("b", "slow", topic), harness.send("c", "fast", topic)]
    harness.take(*records, harness.send("d", "fast"), harness.say("list", "slow", reply="me"))
    assert harness.processor.paused_topics == {topic: "slow"}
    assert harness.processor.positions == {"in": 2, "control": 2, topic: 0}
    assert (harness.ready("slow"), harness.ready("fast")) == (["a"], ["d"])


def test_records_behind_a_blocked_one_are_processed_after_it(harness: Harness) -> None:
    """In the same batch as the resume, in a later one, before and after: the host goes back."""
    blocked, behind = harness.send("b", "slow"), harness.send("c", "fast")
    harness.take(blocked)
    harness.take(behind, harness.say("resume", "slow", what="pulling"), harness.send("d", "slow"))
    assert harness.processor.accepts_sends("slow")
    harness.take(harness.send("e", "slow"))
    assert (harness.ready("slow"), harness.ready("fast"), harness.processor.positions["in"]) == (
        ["a"],
        [],
        1,
    )
    harness.go_on("in")
    assert (harness.ready("slow"), harness.ready("fast")) == (["a", "b", "d", "e"], ["c"])
    assert harness.processor.positions["in"] == 5
    harness.take(blocked, behind)
    assert harness.ready("slow") == ["a", "b", "d", "e"], "repeats do nothing"


def test_the_next_paused_queue_blocks_the_topic_again(harness: Harness) -> None:
    harness.take(harness.say("pause", "fast", what="pulling"))
    harness.take(harness.send("b", "slow"), harness.send("c", "fast"), harness.send("d", "slow"))
    harness.take(harness.say("resume", "slow", what="pulling"))
    harness.go_on("in")
    assert harness.processor.paused_topics == {"in": "fast"}
    assert (harness.ready("slow"), harness.ready("fast")) == (["a", "b"], [])


def test_it_is_found_again_after_a_crash(harness: Harness) -> None:
    harness.take(harness.send("b", "slow"), harness.send("c", "fast"))
    harness.open()
    assert harness.processor.paused_topics == {}
    position = harness.processor.positions["in"]
    assert position == 1
    harness.take(*harness.logs["in"][position:])
    assert harness.processor.paused_topics == {"in": "slow"}
    harness.take(harness.say("resume", "slow", what="pulling"))
    harness.go_on("in")
    assert (harness.ready("slow"), harness.ready("fast")) == (["a", "b"], ["c"])


def test_a_deleted_queue_blocks_nobody(harness: Harness) -> None:
    harness.take(
        harness.say("create_queue", "new", settings={}), harness.say("pause", "new", what="pulling")
    )
    harness.take(harness.send("b", "new"), harness.say("delete_queue", "new"))
    assert harness.processor.paused_topics == {"in": "new"}
    assert harness.processor.accepts_sends("new")
    harness.go_on("in")
    assert harness.processor.state.queue("new") is None, "what came was refused"
    assert harness.processor.positions["in"] == 2
    harness.take(harness.send("c", "slow", "side"), harness.say("delete_queue", "slow"))
    harness.go_on("side")
    assert harness.ready("slow") == ["c"], "queues.yaml declares it, so it is created again"


def test_time_and_settles_continue(harness: Harness) -> None:
    harness.take(harness.say("resume", "slow", what="pulling"))
    harness.take(harness.send("b", "slow", **{"ringfaust-delay-ms": "500"}))
    harness.take(harness.say("pause", "slow", what="pulling"), harness.send("c", "slow"))
    harness.take(harness.say("attach", "slow", consumer="me", credit=1))
    assert harness.ready("slow") == []
    harness.now_ms += 500
    harness.processor.tick(harness.now_ms)
    assert harness.ready("slow") == ["b"]
    harness.take(harness.say("ack", "slow", consumer="me", message="a"))
    found = harness.processor.state.queue("slow")
    assert found is not None
    counts = found.counts
    assert (counts.acked, counts.delivering, counts.added) == (1, 1, 2)


def test_an_undecodable_record_waits_for_no_queue(harness: Harness) -> None:
    harness.take(harness.send("b", "slow", **{"ringfaust-priority": "much"}))
    assert (harness.processor.paused_topics, harness.processor.positions["in"]) == ({}, 2)


def test_paused_dispatch_blocks_nothing(harness: Harness) -> None:
    harness.take(harness.say("pause", "fast", what="dispatch"), harness.send("b", "fast"))
    assert (harness.processor.paused_topics, harness.ready("fast")) == ({}, ["b"])


def test_gaps_in_the_log_change_nothing(harness: Harness) -> None:
    """Transaction markers and compaction leave offsets that no record has."""
    harness.take(
        harness.send("b", "slow")._replace(offset=7), harness.send("c", "slow")._replace(offset=9)
    )
    assert harness.processor.positions["in"] == 7
    harness.take(harness.say("resume", "slow", what="pulling"))
    harness.processor.resume("in")
    harness.take(*(harness.logs["in"][n]._replace(offset=at) for n, at in ((1, 7), (2, 9))))
    assert (harness.ready("slow"), harness.processor.positions["in"]) == (["a", "b", "c"], 10)


# --- full queues ----------------------------------------------------------------------------------


@pytest.fixture
def full() -> Harness:
    """Two of three that `slow` may hold, in one topic with `fast`."""
    harness = Harness()
    harness.take(
        harness.say("configure", "slow", settings={"max_messages": 2, "when_full": "block"})
    )
    harness.take(harness.send("a", "slow"), harness.send("b", "slow"), harness.send("c", "slow"))
    return harness


def test_a_full_queue_blocks_its_topic_and_no_other(full: Harness) -> None:
    assert full.processor.paused_topics == {"in": "slow"}
    full.take(full.send("d", "fast"), full.send("e", "fast", "side"))
    assert (full.ready("slow"), full.ready("fast")) == (["a", "b"], ["e"])
    assert full.processor.positions["in"] == 2
    full.take(full.say("remove", "slow", message="a"))
    assert full.processor.accepts_sends("slow")
    full.go_on("in")
    assert (full.ready("slow"), full.ready("fast")) == (["b", "c"], ["e", "d"])
    assert full.processor.paused_topics == {}


def test_after_a_restart_it_is_still_full(full: Harness) -> None:
    full.open()
    assert full.processor.paused_topics == {}
    full.take(*full.logs["in"])
    assert full.processor.paused_topics == {"in": "slow"}
    assert full.ready("slow") == ["a", "b"]


def test_a_full_queue_accepts_what_an_operator_moves(full: Harness) -> None:
    full.take(full.send("m", "fast", "side"), full.say("move", "fast", message="m", to="slow"))
    assert full.ready("slow") == ["a", "b", "m"]


def test_a_position_is_kept_of_each_partition_that_was_copied() -> None:
    """Its repartition task has no state (ADR 13), and Kafka may forget the group's offset."""
    harness = Harness()

    def copied(source: str, topic_id: str) -> None:
        ours = {h.SOURCE: source, h.SOURCE_TOPIC_ID: topic_id}
        harness.take(harness.send(source, "slow", topic="hop", **ours))

    for source in ("in/0/5", "in/1/7", "in/0/9"):
        copied(source, "id")
    copied("in/0/x", "id")
    copied("other/0/1", "")
    harness.open()
    kept = {"hop": 5, "in/0/id": 10, "in/1/id": 8}
    assert harness.processor.positions == kept
    copied("in/0/0", "its successor")
    assert harness.processor.positions == {"hop": 6, "in/1/id": 8, "in/0/its successor": 1}


def test_the_positions_that_are_kept_have_a_bound() -> None:
    harness, most = Harness(), limits.COPIED_PARTITIONS
    harness.processor.skip_to({f"in/{number}/id": 1 for number in range(most)})
    ours = {h.SOURCE: f"in/{most}/5", h.SOURCE_TOPIC_ID: "id"}
    harness.take(harness.send("a", "slow", topic="hop", **ours))
    assert len(harness.processor.positions) == most + 1


@pytest.mark.parametrize(
    ("source", "topic_id"),
    [
        ("in/0/5", "i" * 400),
        ("in/0/5", "\u20ac"),
        (f"{'t' * 400}/0/5", "id"),
        ("in/0/" + "9" * 400, "id"),
    ],
)
def test_what_cannot_be_a_copied_partition_is_not_kept(source: str, topic_id: str) -> None:
    """R120: three ids of 850 kB were a row of 2.5 MB, which each batch wrote."""
    harness = Harness()
    ours = {h.SOURCE: source, h.SOURCE_TOPIC_ID: topic_id}
    harness.take(harness.send("a", "slow", topic="hop", **ours))
    assert harness.processor.positions == {"hop": 1}
    assert harness.ready("slow") == ["a"]


def test_no_topic_waits_for_a_revision_that_cannot_be_applied() -> None:
    harness = Harness()
    for revision in (limits.REVISION + 1, 999_999_999_999_999):
        ours = {h.REVISION: str(revision)}
        harness.take(harness.send(str(revision), "slow", topic="hop", **ours))
    assert harness.processor.paused_topics == {}
    assert harness.processor.positions == {"hop": 2}


def test_what_a_newer_route_has_sent_waits_until_that_is_in_use() -> None:
    """R128: its queue may be one that only the newer configuration declares."""
    harness = Harness()
    configuration = {"queues": {"slow": {}, "late": {}}}
    early = {h.REVISION: "2"}
    harness.take(harness.send("a", "slow", topic="hop", **{h.REVISION: "0"}))
    harness.take(harness.send("b", "late", topic="hop", **early))
    assert harness.processor.positions["hop"] == 1
    (waits_for,) = harness.processor.paused_topics.values()
    assert not harness.processor.accepts_sends(waits_for)
    assert "revision 2 of the configuration" in harness.processor.why_paused(waits_for)
    for revision in (1, 2):
        value = {"type": "apply", "revision": revision, "configuration": configuration}
        harness.take(harness.write("control", json.dumps(value).encode()))
        assert harness.processor.accepts_sends(waits_for) is (revision == 2)
    harness.go_on("hop")
    assert harness.ready("late") == ["b"]
    assert harness.processor.positions["hop"] == 2
    odd = {h.REVISION: "x"}
    harness.take(harness.send("c", "late", topic="hop", **odd))
    assert harness.ready("late") == ["b", "c"]
