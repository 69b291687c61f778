"""Distributed transactions (R81)."""

from __future__ import annotations

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import AckMode, Refusal, XidRow
from ringfaust.core.queue import Queue
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.records import Payload
from tests.core.test_engine import refusals, refused

BODY = Payload(None, b"", (), "in/0/0")
OWNER = "coordinator"


@pytest.fixture
def it() -> MemoryHost:
    return MemoryHost(Catalog({"q": {"ring_size": 2, "consumer_timeout": 0}, "other": {}}, {}))


def send(it: MemoryHost, message_id: str, queue: str = "q", xid: str = "") -> list[e.Effect]:
    owner = OWNER if xid else ""
    send = c.Send(queue, message_id, 0, payload=BODY, xid=xid, owner=owner)
    return it.step(send, 0).all_effects


def queue(it: MemoryHost, name: str = "q") -> Queue:
    found = it.state.queue(name)
    assert found is not None
    return found


def ready(it: MemoryHost, name: str = "q") -> list[str]:
    return [message.id for message in queue(it, name).in_order()]


def kinds(effects: list[e.Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def prepared_ack(it: MemoryHost) -> None:
    send(it, "A")
    it.step(c.Attach("q", "k", 1), 0)
    it.step(c.Begin("x", OWNER), 0)
    it.step(c.Ack("q", "k", "A", xid="x", owner=OWNER), 0)
    it.step(c.Prepare("x"), 0)


def test_operations_take_effect_at_the_commit_in_order(it: MemoryHost) -> None:
    it.step(c.Begin("x", OWNER), 0)
    assert kinds(send(it, "A", xid="x")) == ["Pending"]
    send(it, "B", xid="x")
    send(it, "now")
    assert ready(it) == ["now"]
    it.step(c.Prepare("x"), 0)
    assert kinds(it.step(c.Commit("x"), 0).all_effects) == ["Added", "Added", "Evicted", "Decided"]
    assert ready(it) == ["A", "B"]
    assert [message.sequence for message in queue(it).in_order()] == [2, 3]


def test_commands_out_of_order_are_refused(it: MemoryHost) -> None:
    it.step(c.Begin("x", OWNER), 0)
    for command in (
        c.Begin("x", OWNER), c.Begin(""), c.Commit("x"), c.Commit("y"), c.Prepare("y"),
        c.RollbackXid("y"), c.Send("q", "m", 0, xid="y"),
    ):  # fmt: skip
        assert refused(it, command) == [Refusal.BAD_COMMAND], command
    it.step(c.Prepare("x"), 0)
    assert refused(it, c.Prepare("x")) == [Refusal.BAD_COMMAND]
    assert refusals(send(it, "late", xid="x")) == [Refusal.BAD_COMMAND]
    it.step(c.Commit("x"), 0)
    assert refused(it, c.Commit("x")) == [Refusal.BAD_COMMAND]


@pytest.mark.parametrize("leave", [c.Detach("q", "k"), c.Recover("q", "k"), c.Purge("q")], ids=str)
def test_a_pending_ack_protects_its_message_from_eviction_and_delivery(
    it: MemoryHost, leave: c.Command
) -> None:
    prepared_ack(it)
    it.step(leave, 0)
    it.crash()
    for number in range(3):
        send(it, f"B{number}")
    it.step(c.Attach("q", "other", 9), 0)
    held = [delivery.message.id for _, delivery in queue(it).deliveries]
    assert held == ["A", "B1", "B2"]
    effects = it.step(c.Commit("x"), 0).all_effects
    acked = [effect.delivery.message.id for effect in effects if isinstance(effect, e.Acked)]
    assert acked == ["A"]
    assert queue(it).counts.acked == 1
    queue(it).check()


def test_a_delivery_with_a_pending_ack_counts_as_settled(it: MemoryHost) -> None:
    prepared_ack(it)
    assert refused(it, c.Ack("q", "k", "A")) == [Refusal.STALE_DELIVERY]
    assert refused(it, c.Release("q", "k", "A")) == [Refusal.STALE_DELIVERY]
    it.step(c.Detach("q", "k"), 0)
    assert refused(it, c.DeleteQueue("q")) == [Refusal.BAD_COMMAND]
    assert refused(it, c.Ack("q", "k", "A")) == [Refusal.STALE_DELIVERY]
    assert refused(it, c.Ack("q", "other", "A")) == [Refusal.BAD_COMMAND]
    it.step(c.Attach("q", "k", 1), 0)
    it.crash()
    assert refused(it, c.Ack("q", "k", "A")) == [Refusal.STALE_DELIVERY]
    assert refused(it, c.Ack("q", "k", "B")) == [Refusal.UNKNOWN_DELIVERY]


def test_a_new_consumer_of_the_same_name_does_not_inherit_a_pending_ack(it: MemoryHost) -> None:
    prepared_ack(it)
    it.step(c.Detach("q", "k"), 0)
    it.step(c.Attach("q", "k", 1), 0)
    effects = send(it, "B")
    assert "Dispatched" in kinds(effects)
    it.crash()
    it.step(c.Ack("q", "k", "B"), 0)
    it.step(c.RollbackXid("x"), 0)
    assert [d.message.id for _, d in queue(it).deliveries] == ["A"]
    assert queue(it).consumers["k"].in_flight == 1


def test_rollback_returns_one_set_for_each_queue(it: MemoryHost) -> None:
    for message_id in "AB":
        send(it, message_id)
    it.step(c.Attach("q", "k1", 1), 0)
    it.step(c.Attach("q", "k2", 1), 0)
    it.step(c.Begin("x", OWNER), 0)
    it.step(c.Ack("q", "k2", "B", xid="x", owner=OWNER), 0)
    it.step(c.Ack("q", "k1", "A", xid="x", owner=OWNER), 0)
    send(it, "C")
    send(it, "never", xid="x")
    for name in ("k1", "k2"):
        it.step(c.Detach("q", name), 0)
    effects = it.step(c.RollbackXid("x"), 0).all_effects
    assert kinds(effects) == ["Returned", "Evicted", "Decided"]
    assert ready(it) == ["B", "C"]


def test_a_restart_rolls_back_what_was_not_prepared(it: MemoryHost) -> None:
    prepared_ack(it)
    it.step(c.Begin("y", OWNER), 0)
    send(it, "never", xid="y")
    it.crash()
    assert kinds(it.step(c.Start(), 0).all_effects) in (
        [],
        ["Decided"],
    )  # the host may have done it already
    assert refused(it, c.Prepare("y")) == [Refusal.BAD_COMMAND]
    assert refused(it, c.Commit("x")) == []


def test_client_mode_settles_all_before_it(it: MemoryHost) -> None:
    it.step(c.Attach("other", "k", 9, ack_mode=AckMode.CLIENT), 0)
    for message_id in "ABC":
        send(it, message_id, "other")
    it.step(c.Begin("x", OWNER), 0)
    it.step(c.Ack("other", "k", "B", xid="x", owner=OWNER), 0)
    it.step(c.Prepare("x"), 0)
    it.step(c.Detach("other", "k"), 0)
    assert ready(it, "other") == ["C"]
    it.step(c.Commit("x"), 0)
    assert queue(it, "other").counts.acked == 2


def test_only_the_refused_send_of_a_transaction_is_refused(it: MemoryHost) -> None:
    it.step(c.Begin("x", OWNER), 0)
    send(it, "lost", queue="nowhere", xid="x")
    send(it, "A", xid="x")
    it.step(c.Prepare("x"), 0)
    assert kinds(it.step(c.Commit("x"), 0).all_effects) == ["Refused", "Added", "Decided"]


def test_redrives_also_count_in_a_transaction(it: MemoryHost) -> None:
    """R43: a loop is not to be closed by way of an xid."""
    it.step(c.Begin("x", OWNER), 0)
    it.step(c.Send("q", "A", 0, payload=BODY, xid="x", owner=OWNER, redrives=6), 0)
    it.step(c.Prepare("x"), 0)
    it.crash()
    assert kinds(it.step(c.Commit("x"), 0).all_effects) == ["Refused", "Decided"]


def test_a_queue_deleted_during_a_commit_gets_none_of_the_later_sends() -> None:
    """R70, R80: each operation is a command of its own."""
    it = MemoryHost(Catalog({}, {}, {"p": {}}))
    it.step(c.Subscribe("p", "k", 9), 0)
    send(it, "A", "p")
    it.step(c.Begin("x", OWNER), 0)
    it.step(c.Ack("p::k", "k", "A", xid="x", owner=OWNER), 0)
    send(it, "B", "p", "x")
    it.step(c.Detach("p::k", "k"), 0)
    it.step(c.Prepare("x"), 0)
    effects = it.step(c.Commit("x"), 0).all_effects
    assert kinds(effects) == ["Acked", "Deleted", "Unrouted", "Decided"]


def test_a_client_ack_that_is_rolled_back_covers_other_queues_too() -> None:
    """R16, C9: what was not acked has its attempt taken back."""
    it = MemoryHost(Catalog({"q": {"compat": "artemis"}, "other": {"compat": "artemis"}}, {}))
    for name in ("q", "other"):
        it.step(c.Attach(name, "k", 1, ack_mode=AckMode.CLIENT, session="s"), 0)
        send(it, "A", name)
        send(it, "B", name)
    effects = it.step(c.Rollback("s", (c.Ack("other", "k", "A"),)), 0).all_effects
    returned = [one.message for one in effects if isinstance(one, e.Returned)]
    assert [(message.id, message.attempts) for message in returned] == [("A", 1), ("A", 1)]


# --- who takes part, and for how long -------------------------------------------------------------


def reasons(it: MemoryHost, command: c.Command, now_ms: int = 0) -> list[tuple[str, str]]:
    effects = it.step(command, now_ms).all_effects
    return [(each.reason, each.text) for each in effects if isinstance(each, e.Refused)]


def test_a_partition_has_a_thousand_transactions_at_most(it: MemoryHost) -> None:
    for number in range(limits.XIDS):
        assert not reasons(it, c.Begin(f"x{number}", f"o{number // limits.XIDS_OF_OWNER}"))
    assert reasons(it, c.Begin("x", "o"))[0][0] == "limit"


def test_a_timeout_counts_from_the_begin_and_ends_with_the_prepare(it: MemoryHost) -> None:
    send(it, "A")
    it.step(c.Attach("q", "k", 1), 0)
    it.step(c.Begin("x", OWNER), 1_000)
    it.step(c.Begin("prepared", OWNER, 500), 1_000)
    it.step(c.Ack("q", "k", "A", xid="x", owner=OWNER), 200_000)
    it.step(c.Prepare("prepared"), 1_499)
    assert it.state.next_wake_ms() == 301_000
    assert kinds(it.step(c.Sweep(), 300_999).all_effects) == []
    assert kinds(it.step(c.Sweep(), 301_000).all_effects) == ["Returned", "Dispatched", "Decided"]
    assert it.state.next_wake_ms() is None
    assert not reasons(it, c.Commit("prepared"), 900_000)


def test_only_time_that_was_heard_counts(it: MemoryHost) -> None:
    """R110: the prepare may be in the log, but not read yet."""
    it.step(c.Begin("x", OWNER, 1_000), 0)
    assert not it.step(c.Sweep(heard_ms=999), 5_000).all_effects
    assert it.state.next_wake_ms() == 6_000
    assert not it.step(c.Sweep(heard_ms=6_000, heard_since_ms=5_001), 6_000).all_effects
    assert kinds(it.step(c.Sweep(heard_ms=6_000, heard_since_ms=5_000), 7_000).all_effects) == [
        "Decided"
    ]


def test_a_row_from_before_there_were_timeouts_has_none(it: MemoryHost) -> None:
    it.state.xids.put_new(1, XidRow("old", False, 0))
    it.step(c.Begin("x", OWNER), 0)
    assert kinds(it.step(c.Sweep(), 10**9).all_effects) == ["Decided"]
    assert [row.name for _, row in it.state.xids] == ["old"]
