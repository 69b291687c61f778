"""Replies to refused sends, what a start does, and what the changelog gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.errors import ProtocolError
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.control import read_control
from ringfaust.protocol.records import OutRecord, Role
from ringfaust.protocol.routes import Route
from tests.records import new_record

STRICT = {"max_messages": 1, "when_full": "reject_newest"}


class Bench:
    """A processor of which all is seen."""

    def __init__(self) -> None:
        self.store = MemoryKeyValue()
        self.offset = 0
        self.open()

    def open(self) -> None:
        shared = ProcessorConfig(
            control_topic="control", repartition_topic="hop", routes=[Route("in", "{header:to}")],
            max_record_bytes=9_000, log_is_clock=False,
        )  # fmt: skip
        addresses = {"all": {"subscriptions": {"one": STRICT, "two": STRICT}}}
        catalog = Catalog({"q": {}, "strict": STRICT}, {}, addresses)
        self.processor: Processor[list[OutRecord]] = Processor(
            shared, State(ByteStore(self.store), catalog), {}, list
        )

    def take(self, topic: str, value: bytes, *headers: tuple[str, bytes]) -> None:
        self.offset += 1
        self.processor.take([new_record(topic, self.offset, value, headers)], 1_000)

    def send(self, to: str, message: str, **more: str) -> list[dict[str, Any]]:
        ours = {"to": to, "ringfaust-id": message, **more}
        self.take("in", b"body", *((n.replace("_", "-"), t.encode()) for n, t in ours.items()))
        return self.replies()

    def say(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        self.take("control", json.dumps({"type": kind, "reply": "me", **fields}).encode())
        return self.replies()

    def replies(self) -> list[dict[str, Any]]:
        self.out = self.processor.outputs()
        writes = self.processor.writes()
        self.store.apply(writes.store)
        self.processor.committed(1 << 20)
        self.has_non_persistent = writes.store is not writes.changelog
        found = self.out.get((Role.REPLIES, None), [])
        return [
            {"key": (key or b"").decode(), **json.loads(value or b"")} for key, value, _ in found
        ]

    def lines(self) -> list[dict[str, Any]]:
        records = self.out.get((Role.EVENTS, None), [])
        return [json.loads(line) for _, value, _ in records for line in (value or b"").splitlines()]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_refused_send_is_reported_by_its_id(bench: Bench) -> None:
    assert bench.send("strict", "a") == []
    (result,) = bench.send("strict", "b")
    assert (result["key"], result["reason"], result["queue"], result["by"]) == (
        "b", "queue_full", "strict", "in/0/2",
    )  # fmt: skip
    (result,) = bench.send("nowhere", "c")
    assert (result["key"], result["reason"]) == ("c", "unknown_queue")


def test_each_queue_of_an_address_answers_for_itself(bench: Bench) -> None:
    bench.send("all", "a")
    result = bench.send("all", "b")
    assert [(each["key"], each["queue"]) for each in result] == [
        ("b", "all::one"),
        ("b", "all::two"),
    ]


def test_a_send_that_a_commit_brings_is_refused_alone(bench: Bench) -> None:
    bench.send("strict", "a")
    bench.say("begin", xid="x", owner="me")
    for queue, message in (("strict", "b"), ("q", "c")):
        assert bench.send(queue, message, ringfaust_xid="x", ringfaust_xid_owner="me") == []
    bench.say("prepare", xid="x")
    refused, done = bench.say("commit", xid="x")
    assert (refused["key"], refused["reason"]) == ("b", "queue_full")
    assert (done["key"], done["ok"]) == ("me", True)
    assert [line["event"] for line in bench.lines()] == [
        "refused", "dead", "added", "decided", "done",
    ]  # fmt: skip


def test_a_revision_that_is_in_use_already_is_accepted_and_changes_nothing(bench: Bench) -> None:
    """R128: a new partition has begun with it, and finds it in its control topic."""
    content = {"queues": {"q": {"ring_size": 7}}}
    (done,) = bench.say("apply", revision=3, configuration=content, who="ann")
    assert done["ok"]
    assert [line["event"] for line in bench.lines()] == ["applied", "done"]
    before = bench.processor.state.configuration, bench.processor.state.step
    (done,) = bench.say("apply", revision=3, configuration=content, who="ann")
    assert done["ok"]
    assert [line["event"] for line in bench.lines()] == ["done"]
    for other in (
        {"configuration": {"queues": {"q": {}}}, "who": "ann", "revision": 3},
        {"configuration": content, "who": "bob", "revision": 3},
        {"configuration": content, "who": "ann", "revision": 2},
    ):
        (no,) = bench.say("apply", **other)
        assert no["reason"] == "bad_command"
        assert "ann has applied revision 3 before" in no["text"]
    assert (bench.processor.state.configuration, bench.processor.state.step) == before


def test_a_start_rolls_back_what_is_not_prepared(bench: Bench) -> None:
    bench.say("begin", xid="x")
    bench.open()
    bench.processor.start()
    bench.replies()
    assert [(line["event"], line["by"]) for line in bench.lines()] == [("decided", "start")]
    (result,) = bench.say("prepare", xid="x")
    assert result["reason"] == "bad_command"
    bench.open()
    bench.processor.start()
    bench.replies()
    assert bench.out == {}, "there was nothing to do"


def test_the_changelog_differs_only_where_a_message_is_not_persistent(bench: Bench) -> None:
    bench.send("q", "a")
    assert not bench.has_non_persistent
    bench.send("q", "b", ringfaust_delivery_mode="non_persistent")
    assert bench.has_non_persistent
    bench.say("purge", queue="q")
    assert not bench.has_non_persistent
    bench.send("q", "c")
    assert not bench.has_non_persistent


# --- the timeout in the answer to a consumer (R13)  ----------------------------------------------


def test_the_answer_to_an_attach_states_the_timeout(bench: Bench) -> None:
    """R13: so do those to a subscribe and a heartbeat; a refusal does not."""
    result = {"key": "me", "v": 1, "ok": True, "answer": {"consumer_timeout_ms": 30_000}}
    who = {"queue": "q", "consumer": "k"}
    assert bench.say("attach", **who, credit=1) == [result]
    assert bench.say("configure", queue="q", settings={"consumer_timeout": 3_000})[0]["ok"]
    assert bench.say("heartbeat", **who) == [result | {"answer": {"consumer_timeout_ms": 3_000}}]
    assert bench.say("subscribe", address="all", consumer="k", credit=1) == [result]
    assert "answer" not in bench.say("attach", **who, credit=1)[0]
    assert "answer" not in bench.say("credit", **who, add=1)[0]


# --- acks of several deliveries (R16, R103) -------------------------------------------------------


def test_a_delivery_that_has_ended_is_refused_alone(bench: Bench) -> None:
    for each in "abc":
        bench.send("q", each)
    who = {"queue": "q", "consumer": "k"}
    bench.say("attach", **who, credit=9)
    bench.say("ack", **who, message="b", delivery=2)
    late = {
        "key": "me", "v": 1, "ok": False, "reason": "stale_delivery", "about": "b",
        "text": "the delivery was settled or returned", "delivery": 2,
    }  # fmt: skip
    done = {"key": "me", "v": 1, "ok": True}
    deliveries = [[3, "c"], [2, "b"], [1, "a"]]
    assert bench.say("ack_many", **who, deliveries=deliveries) == [late, done]
    assert [(line["event"], line.get("id")) for line in bench.lines()] == [
        ("refused", None), ("acked", "c"), ("acked", "a"), ("done", None),
    ]  # fmt: skip
    (unknown, twice, again) = bench.say("ack_many", **who, deliveries=[[9, "z"], [2, "b"]])
    assert (unknown["reason"], unknown["delivery"]) == ("unknown_delivery", 9)
    assert (twice, again) == (late, done)


def test_a_delivery_that_is_named_twice_is_acked_once(bench: Bench) -> None:
    bench.send("q", "a")
    who = {"queue": "q", "consumer": "k"}
    bench.say("attach", **who, credit=9)
    refused, done = bench.say("ack_many", **who, deliveries=[[1, "a"], [1, "a"]])
    assert (refused["reason"], refused["delivery"], done["ok"]) == ("stale_delivery", 1, True)


def test_refused_deliveries_are_reported_only_on_request(bench: Bench) -> None:
    """R62 is about sends: a producer must not take them for refusals of its messages."""
    bench.say("attach", queue="q", consumer="k", credit=9)
    ack = {"type": "ack_many", "queue": "q", "consumer": "k", "deliveries": [[1, "a"]]}
    bench.take("control", json.dumps(ack).encode())
    assert bench.replies() == []
    assert [line["event"] for line in bench.lines()] == ["refused", "done"]


def test_a_stranger_acks_nothing(bench: Bench) -> None:
    (refused,) = bench.say("ack_many", queue="q", consumer="k", deliveries=[[1, "a"], [2, "b"]])
    assert (refused["reason"], "delivery" in refused) == ("bad_command", False)


def test_in_mode_client_the_last_delivery_covers_all_before_it(bench: Bench) -> None:
    for each in "abcd":
        bench.send("q", each)
    who = {"queue": "q", "consumer": "k"}
    bench.say("attach", **who, credit=9, ack_mode="client")
    assert bench.say("ack_many", **who, deliveries=[[3, "c"], [1, "a"]])[0]["ok"]
    (listed,) = bench.say("list", queue="q")
    assert listed["answer"]["delivering"] == {"k": ["d"]}


@pytest.mark.parametrize("deliveries", [[], [[0, "a"]], [[1, ""]], [[1]], [["1", "a"]]])
def test_a_list_that_is_no_list_of_deliveries_is_refused(bench: Bench, deliveries: Any) -> None:
    (refused,) = bench.say("ack_many", queue="q", consumer="k", deliveries=deliveries)
    assert refused["reason"] == "bad_command"
    assert refused["text"].startswith("ack_many.deliveries")


def test_an_ack_names_at_most_a_thousand_deliveries() -> None:
    ack = {"type": "ack_many", "queue": "q", "consumer": "k"}
    pairs = [[number, "a"] for number in range(1, limits.ACKS + 2)]
    read_control(json.dumps(ack | {"deliveries": pairs[:-1]}).encode())
    with pytest.raises(ProtocolError, match="deliveries: Tuple should have at most 1000 items"):
        read_control(json.dumps(ack | {"deliveries": pairs}).encode())


def test_the_commands_of_operators_and_refusals_are_noted_until_the_next_batch(
    bench: Bench,
) -> None:
    def note(kind: str, **fields: Any) -> list[tuple[str, str, str]]:
        bench.take("control", json.dumps({"type": kind, **fields}).encode())
        found = [(each.asked, each.queue, each.reason) for each in bench.processor.activity().log]
        bench.replies()
        return found

    assert note("pause", queue="q", what="dispatch") == [("pause", "q", "")]
    assert bench.processor.activity().log == []
    assert note("attach", queue="q", consumer="c", credit=1) == []
    assert note("ack", queue="q", consumer="c", message="none") == [
        ("ack", "q", "unknown_delivery")
    ]
    assert note("purge", queue="nowhere") == [("purge", "nowhere", "unknown_queue")]
    assert note("pause", queue="q", reply="me") == [("command", "", "bad_command")]
