"""The proof of the accounts: a correct history balances, and each wrong one is named exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol import headers as h
from ringfaust.protocol.cloud_events import ATTRIBUTES, without_attributes
from ringfaust.protocol.gaps import Gap, GapCause
from ringfaust.protocol.records import FetchedRecord, Headers, Role
from ringfaust.protocol.routes import Route
from ringfaust.testing.accounts.proof import Proof
from ringfaust.testing.accounts.prove import counter_differences
from ringfaust.testing.accounts.reconciler import Reconciler

SECOND = 1_000
QUEUES = Catalog({"q.*": {"ring_size": 2, "max_attempts": 2}}, {})


class History:
    """Topics as a worker writes them, written by the real processor."""

    def __init__(self, catalog: Catalog = QUEUES, cloud_events_of: str = "") -> None:
        self.topics: dict[str, list[FetchedRecord]] = {}
        shared = ProcessorConfig(
            control_topic="control",
            repartition_topic="hop",
            routes=[Route("in", "q.{key}")],
            max_record_bytes=1_000,
            log_is_clock=False,
            cloud_events_of=cloud_events_of,
        )
        self._processor: Processor[list[Any]] = Processor(
            shared, State(ByteStore(MemoryKeyValue()), catalog), {}, list
        )
        self.now_ms = SECOND

    def put(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> FetchedRecord:
        records = self.topics.setdefault(topic, [])
        record = FetchedRecord(topic, 0, len(records), self.now_ms, 1, key, value, headers)
        records.append(record)
        return record

    def send(self, key: str, value: bytes, **headers: object) -> None:
        ours = tuple(
            (h.PREFIX + name.replace("_", "-"), str(it).encode()) for name, it in headers.items()
        )
        self._do(self.put("in", key.encode(), value, (("colour", b"red"), *ours)))

    def ask(self, kind: str, queue: str, **fields: object) -> dict[str, Any]:
        return self.say(kind, queue=queue, **fields)

    def say(self, kind: str, **fields: object) -> dict[str, Any]:
        asked = {"type": kind, "reply": "me", **fields}
        self._do(self.put("control", None, json.dumps(asked).encode(), ()))
        return json.loads(self.topics[Role.REPLIES][-1].value or b"")  # type: ignore[no-any-return]

    def _do(self, record: FetchedRecord) -> None:
        self._processor.take([record], self.now_ms)
        self._write()

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self._processor.tick(self.now_ms)
        self._write()

    def _write(self) -> None:
        for (role, _), records in self._processor.outputs().items():
            for key, value, headers in records:
                self.put(role, key, value, tuple(headers))

    def recreate(self) -> None:
        """The input topic is deleted and created again."""
        gap = Gap("in", 0, len(self.topics["in"]), None, GapCause.RECREATED)
        self.topics["in"] = []
        self._processor.go_to({"in": 0}, {"in": "new"}, [gap])
        self._write()

    def skip(self, gap: Gap) -> None:
        """Records are deleted before they are read."""
        assert gap.last is not None
        for _ in range(gap.first, gap.last + 1):
            self.put("in", b"a", b"deleted", ())
        self._processor.go_to({"in": gap.last + 1}, {"in": "id"}, [gap])
        self._write()

    def held(self) -> dict[str, dict[str, Any]]:
        found = {}
        for key in ("a", "b", "c"):
            found[f"q.{key}"] = self.ask("list", f"q.{key}")["answer"]
        return found

    def proof(self, held: dict[str, dict[str, Any]] | None = None, **options: Any) -> Proof:
        reconciler = Reconciler(["in"], **options)
        for topic, take in {
            "in": reconciler.take_input,
            Role.EVENTS: reconciler.take_events,
            Role.EVICTED: reconciler.take_evicted,
            Role.DEAD: reconciler.take_dead,
            Role.DISPATCHED: reconciler.take_dispatched,
        }.items():
            take(self.topics.get(topic, []))
        return reconciler.proof(held)

    def drop(self, topic: str, number: int) -> None:
        del self.topics[topic][number]

    def double(self, topic: str, number: int) -> None:
        self.topics[topic].insert(number, self.topics[topic][number])

    def change(self, topic: str, number: int, **fields: Any) -> None:
        self.topics[topic][number] = self.topics[topic][number]._replace(**fields)

    def change_line(self, event: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the first line of this event."""
        for number, record in enumerate(self.topics[Role.EVENTS]):
            lines = [json.loads(line) for line in (record.value or b"").split(b"\n")]
            for line in lines:
                if line["event"] == event:
                    change(line)
                    value = "\n".join(json.dumps(each) for each in lines).encode()
                    self.change(Role.EVENTS, number, value=value)
                    return
        raise AssertionError(event)


@pytest.fixture
def history() -> History:
    return filled(History())


def filled(it: History) -> History:
    """Every outcome at least once; comments give the offsets in `in`."""
    it.send("a", b"evicted")  # 0
    it.send("a", b"evicted too")  # 1
    it.send("a", b"ready")  # 2
    it.send("a", b"ready too")  # 3
    it.ask("attach", "q.b", consumer="slow", credit=3)
    it.send("b", b"acked")  # 4
    it.send("b", b"released, then rejected")  # 5
    it.send("b", b"released, then undeliverable")  # 6
    it.ask("ack", "q.b", consumer="slow", message="in/0/4")
    it.ask("release", "q.b", consumer="slow", message="in/0/5")
    it.ask("reject", "q.b", consumer="slow", message="in/0/5")
    it.ask("release", "q.b", consumer="slow", message="in/0/6")
    it.ask("release", "q.b", consumer="slow", message="in/0/6")
    it.send("b", b"delivering")  # 7
    it.send("b", b"scheduled", delay_ms=60_000)  # 8
    it.send("c", b"expired", ttl_ms=10)  # 9
    it.send("c", b"came due", delay_ms=10)  # 10
    it.send("c", b"removed")  # 11
    it.ask("remove", "q.c", message="in/0/11")
    it.send("c", b"undecodable", priority="high")  # 12
    it.send("c", b"x" * 2_000)  # 13
    it.send("c", b"moved")  # 14
    it.ask("move", "q.c", message="in/0/14", to="q.b")
    it.ask("detach", "q.b", consumer="nobody")  # refused; not the outcome of an input
    it.pass_time(20)
    return it


def test_cloud_events_are_no_change(history: History) -> None:
    marked = filled(History(cloud_events_of="shop"))
    proof = marked.proof(marked.held())
    assert proof.balanced and not proof.problems()
    for topic in (Role.EVICTED, Role.DEAD):
        pairs = zip(history.topics[topic], marked.topics[topic], strict=True)
        for plain, made in pairs:
            assert (made.key, made.value) == (plain.key, plain.value)
            assert tuple(without_attributes(made.headers)) == plain.headers
            assert len(made.headers) == len(plain.headers) + len(ATTRIBUTES)
    types = {dict(each.headers)["ce_type"] for each in marked.topics[Role.DEAD]}
    assert types == {b"ringfaust.dead", b"ringfaust.undecodable"}
    for topic in (Role.DISPATCHED, Role.EVENTS):
        assert marked.topics[topic] == history.topics[topic]


def test_a_correct_history_balances(history: History) -> None:
    held = history.held()
    proof = history.proof(held)
    assert proof.problems() == []
    assert proof.balanced
    assert (proof.inputs, proof.undecodable, proof.refused) == (15, 2, 0)
    a, b, c = (account.counts for account in proof.accounts.values())
    assert (a.added, a.evicted, a.ready) == (4, 2, 2)
    assert (b.added, b.acked, b.dead, b.delivering, b.scheduled) == (6, 1, 2, 2, 1)
    assert (c.added, c.expired, c.removed, c.moved_out, c.ready) == (4, 1, 1, 1, 1)
    assert counter_differences(proof, held) == []


def test_the_events_tell_what_is_held_as_the_listings_do(history: History) -> None:
    assert history.proof(history.held()).accounts == history.proof().accounts


def test_a_record_without_output_is_named(history: History) -> None:
    history.drop(Role.EVICTED, 1)
    proof = history.proof()
    assert proof.missing == ["in/0/1"]
    assert not proof.balanced
    assert [row.queue for row in proof.accounts.values() if not row.balanced] == ["q.a"]
    assert "1 record without an outcome: in/0/1" in proof.problems()


def test_an_unread_input_is_named(history: History) -> None:
    history.put("in", b"a", b"not read", ())
    proof = history.proof()
    assert proof.missing == ["in/0/15"]
    assert proof.problems() == ["1 record without an outcome: in/0/15"]


def test_a_duplicated_output_is_named(history: History) -> None:
    history.double(Role.EVICTED, 0)
    proof = history.proof()
    assert proof.duplicated == ["in/0/0"]
    assert not proof.accounts["q.a"].balanced
    assert any("2 records of message 1 of q.a" in text for text in proof.faults)


def test_an_altered_output_is_named(history: History) -> None:
    history.change(Role.EVICTED, 1, value=b"other")
    proof = history.proof()
    assert (proof.altered, proof.missing, proof.duplicated) == (["in/0/1"], [], [])
    assert not proof.balanced
    assert history.proof(evicted_payload="none").balanced


@pytest.mark.parametrize("role", [Role.DEAD, Role.DISPATCHED])
def test_a_lost_header_of_the_producer_is_found(history: History, role: Role) -> None:
    record = history.topics[role][0]
    ours = tuple(pair for pair in record.headers if pair[0] != "colour")
    history.change(role, 0, headers=ours)
    assert len(history.proof().altered) == 1


def test_an_output_of_an_unknown_input_is_named(history: History) -> None:
    record = history.topics[Role.EVICTED][0]
    other = tuple((n, b"in/0/99" if n == h.SOURCE else v) for n, v in record.headers)
    history.change(Role.EVICTED, 0, headers=other)
    proof = history.proof()
    assert (proof.unexplained, proof.missing) == (["in/0/99"], ["in/0/0"])


@pytest.mark.parametrize(("count", "tamper"), [(0, History.drop), (2, History.double)])
def test_a_delivery_has_exactly_one_record(
    history: History, count: int, tamper: Callable[[History, str, int], None]
) -> None:
    tamper(history, Role.DISPATCHED, 2)
    (fault,) = history.proof().faults
    assert fault == (
        f"topic dispatched, partition 0: {count} records of delivery 3 (message 3 of q.b, to "
        "slow), but 1 events"
    )


def test_evictions_out_of_order_are_found(history: History) -> None:
    records = history.topics[Role.EVICTED]
    records.reverse()
    assert history.proof().faults == [
        "topic evicted, partition 0: the records are not in the order of the events"
    ]


def test_an_eviction_of_a_delivering_message_is_found(history: History) -> None:
    late = history.topics[Role.EVENTS][-1]
    line = {"step": 999, "event": "evicted", "queue": "q.b", "sequence": 4, "reason": "overflow"}
    value = json.dumps(line | {"by": "tick"}).encode()
    history.topics[Role.EVENTS].append(late._replace(value=value))
    assert "message 4 of q.b was evicted while delivering" in history.proof().faults


def test_a_second_outcome_is_found(history: History) -> None:
    history.change_line("acked", lambda line: line.update(sequence=2))
    faults = history.proof().faults
    assert any("message 2 of q.b" in text for text in faults)


def test_a_wrong_listing_is_named(history: History) -> None:
    held = history.held()
    held["q.a"]["ready"][0] = "in/0/77"
    proof = history.proof(held)
    assert proof.missing == ["in/0/2"]
    assert "queue q.a lists in/0/77 as ready, wrongly" in proof.faults
    assert "queue q.a does not list in/0/2, which is ready" in proof.faults


def test_an_incomplete_listing_is_found(history: History) -> None:
    held = history.held()
    held["q.a"]["ready"].pop()
    faults = history.proof(held).faults
    assert "queue q.a: counts 2 as ready but lists 1" in faults


def test_a_queue_without_a_listing_is_found(history: History) -> None:
    held = history.held()
    del held["q.a"]
    assert "queue q.a holds 2 messages but was not listed" in history.proof(held).faults


def test_a_different_counter_is_found(history: History) -> None:
    held = history.held()
    held["q.a"]["counts"]["evicted"] = 7
    found = counter_differences(history.proof(held), held)
    assert found == ["queue q.a: the worker counts evicted 7, the topics 2"]


def test_damaged_events_are_found(history: History) -> None:
    history.change(Role.EVENTS, 0, value=b'{"event":"add')
    assert "events 0/0 is not lines of JSON" in history.proof().faults


def test_a_queue_may_be_deleted_and_created_again(history: History) -> None:
    history.ask("create_queue", "other", settings={})
    history.ask("delete_queue", "q.a")
    history.send("a", b"a new first")
    proof = history.proof()
    assert proof.problems() == []
    assert proof.accounts["q.a"].counts.added == 5


def test_a_send_to_an_unknown_queue_counts_as_refused() -> None:
    history = History()
    history.send("a.b", b"the pattern is q.*")
    proof = history.proof()
    assert proof.balanced
    assert (proof.inputs, proof.refused) == (1, 1)


def test_only_the_first_few_records_are_named() -> None:
    history = History()
    for _ in range(9):
        history.put("in", b"a", b"never read", ())
    assert history.proof().problems() == [
        "9 records without an outcome: in/0/0, in/0/1, in/0/2, in/0/3, in/0/4, …"
    ]


def test_gaps_are_named_and_a_recreated_topic_is_not_taken_for_its_predecessor() -> None:
    """R112: the positions of the old topic come again, and are not taken for repeats."""
    history = History()
    for value in (b"1", b"2", b"3"):
        history.send("a", value)
    history.recreate()
    for value in (b"4", b"5"):
        history.send("a", value)
    proof = history.proof()
    assert proof.problems() == []
    assert proof.balanced
    assert proof.gaps == ["in/0/3-"]
    assert (proof.inputs, proof.accounts["q.a"].counts.added) == (2, 5)


def test_deleted_records_that_have_outcomes_are_not_unexplained() -> None:
    """R112: the worker processed 0 and 1; 2 was deleted before it was read."""
    history = History()
    for value in (b"1", b"2"):
        history.send("a", value)
    history.skip(Gap("in", 0, 2, 2, GapCause.DELETED))
    history.send("a", b"4")
    del history.topics["in"][:3]
    proof = history.proof(begins={("in", 0): 3})
    assert proof.problems() == []
    assert proof.gaps == ["in/0/2-2"]
    assert "in/0/0" in history.proof().unexplained
