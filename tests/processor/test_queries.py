"""The answers to `list`, `list_queues`, `browse` and `list_xids`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor import queries
from ringfaust.processor.outbox import TIMEOUT, LogEntry
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import OutRecord, Role
from ringfaust.protocol.routes import Route
from tests.records import new_record

NOW_MS = 5_000


class Partition:
    """A partition whose replies can be read."""

    def __init__(self) -> None:
        config = ProcessorConfig(
            control_topic="control", repartition_topic="hop", routes=[Route("in", "{header:to}")],
            max_record_bytes=900_000, log_is_clock=False,
        )  # fmt: skip
        queues = {"orders": {"ring_size": 3}, "quiet": {}, "by.#": {"ring_size": 1}}
        catalog = Catalog(queues, {}, {"all": {"subscriptions": {"one": {}}}})
        self.store = MemoryKeyValue()
        self.processor: Processor[list[OutRecord]] = Processor(
            config, State(ByteStore(self.store), catalog), {}, list
        )
        self._offset = 0

    def send(self, queue: str, id_: str, value: bytes = b"body", **headers: str) -> None:
        named = {"to": queue, "ringfaust-id": id_, **headers}
        self._take("in", value, *((n.replace("_", "-"), v.encode()) for n, v in named.items()))

    def ask(self, kind: str, *, now_ms: int = NOW_MS, **fields: Any) -> dict[str, Any]:
        """Send a command and return its reply."""
        command = json.dumps({"type": kind, "reply": "me", **fields}).encode()
        self._take("control", command, now_ms=now_ms)
        out = self.processor.outputs()
        self.lines = [
            json.loads(line)
            for _, value, _ in out.get((Role.EVENTS, None), [])
            for line in (value or b"").splitlines()
        ]
        self.store.apply(self.processor.writes().store)
        self.processor.committed(1 << 20)
        reply: dict[str, Any] = json.loads(out[Role.REPLIES, None][0][1] or b"")
        return reply

    def answer(self, kind: str, *, now_ms: int = NOW_MS, **fields: Any) -> dict[str, Any]:
        """Ask a question and return the answer."""
        reply = self.ask(kind, now_ms=now_ms, **fields)
        assert reply["ok"], reply
        answer: dict[str, Any] = reply["answer"]
        return answer

    def _take(
        self, topic: str, value: bytes, *headers: tuple[str, bytes], now_ms: int = NOW_MS
    ) -> None:
        self._offset += 1
        self.processor.take([new_record(topic, self._offset, value, headers)], now_ms)


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_list_shows_settings_pauses_and_consumers(partition: Partition) -> None:
    partition.send("orders", "a")
    partition.send("orders", "b")
    partition.ask("attach", queue="orders", consumer="c", credit=1, selector="JMSPriority > 2")
    partition.ask("pause", queue="orders", what="pulling")
    answer = partition.answer("list", queue="orders")
    assert answer["settings"]["ring_size"] == 3
    assert answer["settings"]["evict"] == "oldest"
    assert answer["paused"] == ["pulling"]
    assert answer["pulled"] is False
    assert answer["exists"] is True
    assert answer["oldest_ms"] == NOW_MS
    (consumer,) = answer["consumers"]
    assert consumer["consumer"] == "c"
    assert consumer["selector"] == "JMSPriority > 2"
    assert (consumer["credit"], consumer["unsettled"]) == (1, 1)
    assert consumer["silent_ms"] == 0


def test_configure_takes_names_with_and_without_units(partition: Partition) -> None:
    for name, value in (("consumer_timeout_ms", 7000), ("consumer_timeout", 8000)):
        assert partition.ask("configure", queue="orders", settings={name: value})["ok"]
        assert partition.answer("list", queue="orders")["settings"]["consumer_timeout"] == value
    both = {"consumer_timeout_ms": 1000, "consumer_timeout": 2000}
    refused = partition.ask("configure", queue="orders", settings=both)
    assert refused["reason"] == "bad_command"
    assert "is also given as consumer_timeout: remove one of them" in refused["text"]
    assert partition.answer("list", queue="orders")["settings"]["consumer_timeout"] == 8000


def test_a_consumer_grows_silent_although_nothing_else_happens(partition: Partition) -> None:
    partition.ask("attach", queue="orders", consumer="c", credit=1)
    for silent_ms in (90_000, 91_500):
        (consumer,) = partition.answer("list", queue="orders", now_ms=NOW_MS + silent_ms)[
            "consumers"
        ]
        assert consumer["silent_ms"] == silent_ms
    assert partition.lines == []


def test_a_consumer_that_times_out_is_noted_for_the_log(partition: Partition) -> None:
    partition.ask("attach", queue="orders", consumer="c", credit=1)
    partition.processor.tick(NOW_MS + 29_999)
    assert partition.processor.activity().log == []
    partition.processor.tick(NOW_MS + 30_000)
    assert partition.processor.activity().log == [LogEntry(TIMEOUT, "orders", text="c")]


def test_list_says_that_a_queue_of_a_pattern_was_never_used(partition: Partition) -> None:
    assert partition.answer("list", queue="by.EGLL")["exists"] is False
    partition.send("by.EGLL", "a")
    assert partition.answer("list", queue="by.EGLL")["exists"] is True


def test_queues_are_listed_by_name_with_those_that_are_only_declared(partition: Partition) -> None:
    for name in ("by.b", "orders", "by.a"):
        partition.send(name, "m")
    answer = partition.answer("list_queues")
    found = [each["queue"] for each in answer["queues"]]
    assert found == ["all::one", "by.a", "by.b", "orders", "quiet"]
    assert answer["next"] is None
    orders = answer["queues"][3]
    assert orders["counts"] == {"ready": 1, "added": 1, "messages": 1}
    assert orders["ring_size"] == 3
    assert partition.answer("list_queues") == answer
    assert partition.lines == []


def test_queues_are_listed_by_pattern_and_page(partition: Partition) -> None:
    for number in range(5):
        partition.send(f"by.{number}", "m")
    first = partition.answer("list_queues", pattern="by.*", limit=2)
    assert [each["queue"] for each in first["queues"]] == ["by.0", "by.1"]
    rest = partition.answer("list_queues", pattern="by.*", after=first["next"])
    assert [each["queue"] for each in rest["queues"]] == ["by.2", "by.3", "by.4"]


def test_a_pattern_of_many_wildcards_is_answered(partition: Partition) -> None:
    """A matcher that tries every number of words for each `#` would never answer."""
    name = "by." + "a." * 100 + "a"
    partition.send(name, "m")
    assert partition.answer("list_queues", pattern="#.a." * 50 + "b")["queues"] == []
    answer = partition.answer("list_queues", pattern="by." + "#.a." * 50 + "#")
    assert [each["queue"] for each in answer["queues"]] == [name]


def test_a_question_looks_at_a_bounded_number_of_queues(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MOST_QUEUES", 3)
    for number in range(5):
        partition.send(f"by.{number}", "m")
    found, after, questions = [], "", 0
    while after is not None:
        answer = partition.answer("list_queues", pattern="orders", after=after)
        found += [each["queue"] for each in answer["queues"]]
        after, questions = answer["next"], questions + 1
    assert found == ["orders"]
    assert questions == 3


def test_browse_pages_through_bodies_in_delivery_order(partition: Partition) -> None:
    partition.send("by.x.y", "m")
    partition.ask("configure", queue="by.x.y", settings={"ring_size": 10})
    for number in range(4):
        partition.send("by.x.y", f"m{number}", b"body %d" % number, ringfaust_priority=str(number))
    answer = partition.answer("browse", queue="by.x.y", limit=3, body_bytes=4)
    assert [each["id"] for each in answer["messages"]] == ["m", "m3", "m2"]
    assert answer["messages"][1]["value"] == {"text": "body", "bytes": 6}
    rest = partition.answer("browse", queue="by.x.y", after=answer["next"])
    assert [each["id"] for each in rest["messages"]] == ["m1", "m0"]
    assert rest["next"] is None


def test_browse_selects_by_id_and_by_selector(partition: Partition) -> None:
    partition.send("orders", "a", region="eu")
    partition.send("orders", "b", region="us")
    by_id = partition.answer("browse", queue="orders", message="b")["messages"]
    by_selector = partition.answer("browse", queue="orders", selector="region = 'eu'")["messages"]
    assert [each["id"] for each in by_id] == ["b"]
    assert [each["id"] for each in by_selector] == ["a"]
    assert by_selector[0]["headers"]["region"] == {"text": "eu", "bytes": 2}
    refused = partition.ask("browse", queue="orders", selector="region =")
    assert refused["reason"] == "bad_selector"


def test_browse_shows_who_holds_a_message_and_when_one_is_due(partition: Partition) -> None:
    partition.send("orders", "held")
    partition.send("orders", "later", ringfaust_deliver_at_ms="9000")
    partition.ask("attach", queue="orders", consumer="c", credit=1)
    (held,) = partition.answer("browse", queue="orders", state="delivering")["messages"]
    (later,) = partition.answer("browse", queue="orders", state="scheduled")["messages"]
    assert (held["id"], held["consumer"], held["delivery"]) == ("held", "c", 1)
    assert (later["id"], later["due_ms"]) == ("later", 9_000)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xff\xfe\x00\x01\x02", {"base64": "//4AAQI=", "bytes": 5}),
        ("é".encode() * 3_000, {"text": "é" * 500, "bytes": 6_000}),
        (b"a" + "é".encode() * 3_000, {"text": "a" + "é" * 499, "bytes": 6_001}),
    ],
    ids=["binary", "cut between characters", "cut within a character"],
)
def test_bodies_are_text_or_base64(
    partition: Partition, value: bytes, shown: dict[str, Any]
) -> None:
    partition.send("orders", "a", value)
    (found,) = partition.answer("browse", queue="orders")["messages"]
    assert found["value"] == shown


def test_an_answer_stays_within_its_bound(partition: Partition) -> None:
    partition.ask("configure", queue="orders", settings={"ring_size": -1})
    for number in range(30):
        partition.send("orders", str(number), b"\x01" * 100_000)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        answer = partition.answer("browse", queue="orders", body_bytes=100_000, after=after)
        assert len(json.dumps(answer)) < queries.REPLY_BYTES + 1_000
        found += [each["id"] for each in answer["messages"]]
        after = answer["next"]
    assert found == [str(number) for number in range(30)]


@pytest.mark.parametrize("kind", ["list", "browse"])
def test_an_unknown_queue_is_refused(partition: Partition, kind: str) -> None:
    assert partition.ask(kind, queue="nobody")["reason"] == "unknown_queue"


def test_undecided_transactions_are_listed(partition: Partition) -> None:
    partition.ask("begin", xid="one", owner="secret")
    partition.ask("begin", xid="two", timeout_ms=1_000)
    partition.ask("prepare", xid="two")
    common = {"operations": 0, "began_ms": NOW_MS}
    assert partition.answer("list_xids")["xids"] == [
        {"name": "one", "prepared": False, "timeout_ms": 300_000, **common},
        {"name": "two", "prepared": True, "timeout_ms": 1_000, **common},
    ]


@pytest.mark.parametrize(
    ("kind", "field", "name"), [("list_xids", "xids", "name"), ("list", "consumers", "consumer")]
)
@pytest.mark.parametrize("limit", [7, 10_000])
def test_pages_have_all_transactions_and_all_consumers(
    partition: Partition, kind: str, field: str, name: str, limit: int
) -> None:
    """R120: each page is within the bound of a reply; together they have everything."""
    names = [f"{number}".ljust(249, "\U0001f40c") for number in range(400)]  # 12 bytes a character
    asked = {"queue": "orders"} if kind == "list" else {}
    for number, each in enumerate(names):
        if kind == "list":
            partition.ask("attach", queue="orders", consumer=each, credit=1)
        else:
            partition.ask("begin", xid=each, owner=f"{number // 100}")
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        answer = partition.answer(kind, after=after, limit=limit, **asked)
        assert len(json.dumps(answer)) < queries.REPLY_BYTES + 1_000
        assert len(answer[field]) <= limit
        found += [entry[name] for entry in answer[field]]
        after = answer["next"]
    assert found == names
