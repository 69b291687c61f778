"""Limits of a queue beside its ring (R60, R61), and what is not persistent (R82)."""

from __future__ import annotations

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Refusal, plain_position
from ringfaust.core.new import unsent
from ringfaust.core.transitions.placing import place
from ringfaust.core.work import Work
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.records import Payload
from tests.model.harness import DictStore, Partition

BODY = Payload(None, b"", (), "in/0/0")


def host(**settings: object) -> MemoryHost:
    return MemoryHost(Catalog({"q": {"consumer_timeout": 0, **settings}}, {}))


def send(it: MemoryHost, *ids: str, size: int = 1, **fields: object) -> list[e.Effect]:
    effects: list[e.Effect] = []
    for message_id in ids:
        message = c.Send("q", message_id, 0, payload=BODY, size_bytes=size, **fields)  # type: ignore[arg-type]
        effects += it.step(message, 0).all_effects
    return effects


def contents(it: MemoryHost) -> list[str]:
    found = it.state.queue("q")
    assert found is not None
    return [message.id for message in found.in_order()]


def shown(effects: list[e.Effect]) -> list[str]:
    """What happened to whom, but for what was added."""
    found = []
    for effect in effects:
        match effect:
            case e.Evicted(_, message, reason):
                found.append(f"{message.id} evicted {reason}")
            case e.Dead(_, message, reason):
                found.append(f"{message.id} dead {reason}")
            case e.Refused(_, reason, about):
                found.append(f"{about} refused {reason}")
            case e.Dispatched(_, delivery):
                found.append(f"{delivery.message.id} dispatched")
    return found


def test_the_ring_is_tested_before_the_limits() -> None:
    it = host(ring_size=2, max_messages=2, when_full="reject_newest")
    assert shown(send(it, "A", "B", "C")) == ["A evicted overflow"]
    it.step(c.Attach("q", "k", 2), 0)
    assert shown(send(it, "D")) == ["D refused queue_full", "D dead limit"]
    assert it.state.queues["q"].counts.as_dict() | {"refused": 1, "added": 3, "dead": 0} == (
        it.state.queues["q"].counts.as_dict()
    )


def test_a_sent_message_may_be_the_victim_and_is_then_not_refused() -> None:
    it = host(ring_size=1, max_messages=1, when_full="reject_newest", evict="lowest_priority")
    assert shown(send(it, "A") + send(it, "low", priority=0)) == ["low evicted overflow"]


def test_the_newest_is_dropped_unless_a_consumer_has_it() -> None:
    it = host(max_messages=1, when_full="drop_newest")
    it.step(c.Attach("q", "k", 2), 0)
    happened = shown(send(it, "A", "B", "C"))
    assert happened == ["A dispatched", "B dispatched", "C evicted limit"]
    assert shown(send(it, "D", due_ms=9)) == ["D evicted limit"]


def test_the_lowest_priority_is_dropped_first() -> None:
    it = host(max_bytes=10, when_full="drop_lowest_priority")
    send(it, "A", size=4)
    send(it, "B", "C", size=3, priority=1)
    assert shown(send(it, "D", size=6, priority=9)) == ["B evicted limit", "C evicted limit"]
    assert contents(it) == ["D", "A"]


def test_a_message_that_is_too_large_is_always_refused() -> None:
    it = host(max_message_bytes=5)
    assert shown(send(it, "A", size=6)) == ["A refused too_large", "A dead too_large"]
    assert shown(send(it, "B", size=5)) == []


def test_lowering_a_limit_waits_for_the_next_send() -> None:
    it = host()
    send(it, "A", "B", "C")
    assert shown(it.step(c.Configure("q", {"max_messages": 1}), 0).all_effects) == []
    assert shown(send(it, "D")) == [f"{each} evicted limit" for each in "ABC"]


@pytest.mark.parametrize("crash", [False, True])
def test_a_full_queue_with_block_is_not_pulled(crash: bool) -> None:
    it = host(max_messages=2, when_full="block")
    message = c.Send("q", "C", 0)
    send(it, "A")
    assert it.engine.pausing_queue(message) is None
    send(it, "B")
    if crash:
        it.crash()
    assert it.engine.pausing_queue(message) == "q"
    it.step(c.Attach("q", "k", 1), 0)
    assert not it.engine.accepts_sends("q")
    it.step(c.Ack("q", "k", "A"), 0)
    assert it.engine.accepts_sends("q")


def test_block_refuses_a_message_that_could_never_fit() -> None:
    it = host(max_bytes=10, when_full="block")
    assert shown(send(it, "A", size=11)) == ["A refused too_large", "A dead too_large"]


def test_one_full_queue_blocks_its_address() -> None:
    subscriptions = {"full": {"max_messages": 1, "when_full": "block"}, "all": {}}
    it = MemoryHost(Catalog({}, {}, {"prices": {"subscriptions": subscriptions}}))
    message = c.Send("prices", "A", 0, payload=BODY)
    assert it.engine.pausing_queue(message) is None
    it.step(message, 0)
    assert it.engine.pausing_queue(message) == "prices::full"


def test_a_move_into_a_full_queue_changes_nothing() -> None:
    it = MemoryHost(Catalog({"q": {}, "to": {"max_messages": 0, "when_full": "reject_newest"}}, {}))
    send(it, "A")
    assert shown(it.step(c.Move("q", "A", "to"), 0).all_effects) == ["A refused queue_full"]
    assert contents(it) == ["A"]


def test_credit_bytes_limit_what_is_delivered() -> None:
    it = host()
    it.step(c.Attach("q", "k", 9, credit_bytes=5), 0)
    assert shown(send(it, "A", "B", "C", size=3)) == ["A dispatched", "B dispatched"]
    it.crash()
    assert shown(it.step(c.Ack("q", "k", "A"), 0).all_effects) == ["C dispatched"]


def test_a_message_without_its_body_is_lost() -> None:
    it = host()
    send(it, "held", persistent=False)
    it.step(c.Attach("q", "k", 1), 0)
    send(it, "A")
    send(it, "B", persistent=False)
    effects = it.crash().all_effects
    assert [type(effect).__name__ for effect in effects] == ["Lost"]
    send(it, "C")
    queue = it.state.queues["q"]
    assert (queue.counts.lost, queue.non_persistent) == (1, 1)
    effects = it.step(c.Recover("q", "k"), 0).all_effects  # it had it; nobody else can be given it
    assert [type(effect).__name__ for effect in effects] == ["Lost", "Dispatched"]
    queue.check()


def test_a_send_redriven_too_often_is_refused() -> None:
    it = host(max_redrives=2)
    assert shown(send(it, "A", redrives=2)) == []
    refused = it.step(c.Send("q", "A", 0, redrives=3), 0).all_effects
    assert [effect.reason for effect in refused if isinstance(effect, e.Refused)] == [
        Refusal.BAD_COMMAND
    ]


def test_a_message_lost_in_a_crash_does_not_block() -> None:
    it = host(max_messages=1, when_full="block")
    send(it, "A", persistent=False)
    assert not it.engine.accepts_sends("q")
    it.crash()
    assert it.engine.accepts_sends("q")


@pytest.mark.parametrize("evict", ["oldest", "head", "lowest_priority"])
@pytest.mark.parametrize("priorities", [(), (4,), (4, 4), (2, 7), (7, 2), (9, 0, 4)], ids=str)
@pytest.mark.parametrize("priority", [0, 2, 4, 7, 9])
def test_the_victim_beside_another_message_is_that_of_a_ring_with_it(
    evict: str, priorities: tuple[int, ...], priority: int
) -> None:
    it = Partition(DictStore(), {"q": {"evict": evict}})
    for number, each in enumerate(priorities):
        it.step(c.Send("q", f"m{number}", 0, each, payload=BODY), 0)
    queue = it.state.queue("q")
    assert queue is not None
    sequence = queue.sequence + 1
    message = unsent(c.Send("q", "new", 0, priority, payload=BODY))._replace(
        sequence=sequence, position=plain_position(sequence)
    )
    foreseen = queue.victim_with(message)
    place(Work(it.state, 1), queue, message)
    assert foreseen == queue.victim()
