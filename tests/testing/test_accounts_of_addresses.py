"""The proof of the accounts where one record has several outcomes or none yet: R60–R81."""

from __future__ import annotations

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.protocol.records import Role
from tests.testing.test_accounts import History

CATALOG = Catalog(
    {
        "q.*": {"max_messages": 1, "when_full": "reject_newest"},
        "q.once": {"dedup_window": 3_600_000, "max_messages": 9},
    },
    {},
    {
        "q.all": {
            "retroactive_count": 2,
            "subscriptions": {
                "last": {"ring_size": 1},
                "strict": {"max_messages": 1, "when_full": "reject_newest"},
                "once": {"dedup_window": 3_600_000},
            },
        },
        "q.nobody": {},
    },
)


@pytest.fixture
def history() -> History:
    return History(CATALOG)


def test_each_copy_of_a_record_has_an_outcome(history: History) -> None:
    for _ in range(3):
        history.send("all", b"x")
    history.ask("create_queue", "q.all::late", settings={"max_messages": -1})
    proof = history.proof()
    assert proof.problems() == []
    rows = proof.accounts
    assert (rows["q.all::last"].counts.added, rows["q.all::last"].counts.evicted) == (3, 2)
    strict = rows["q.all::strict"].counts
    assert (strict.added, strict.ready, strict.refused, strict.dead) == (1, 1, 2, 0)
    assert rows["q.all::late"].counts.added == 2, "copies of what the address has kept"


def test_a_copy_without_output_is_named(history: History) -> None:
    history.send("all", b"x")
    history.send("all", b"y")
    history.drop(Role.EVICTED, 0)
    proof = history.proof()
    assert proof.missing == ["in/0/0"]
    assert not proof.accounts["q.all::last"].balanced
    assert proof.accounts["q.all::strict"].balanced


def test_a_duplicated_copy_is_named(history: History) -> None:
    history.send("all", b"x")
    history.send("all", b"y")
    history.double(Role.EVICTED, 0)
    assert history.proof().duplicated == ["in/0/0"]


def test_a_subscription_may_end_and_start_again(history: History) -> None:
    history.send("all", b"x")
    for _ in range(2):
        history.say("subscribe", address="q.all", consumer="me", credit=5)
        history.ask("ack", "q.all::me", consumer="me", message="in/0/0")
        history.ask("detach", "q.all::me", consumer="me")
    proof = history.proof()
    assert proof.problems() == []
    assert proof.accounts["q.all::me"].counts.acked == 2


def test_a_message_that_no_queue_took_is_accounted_for(history: History) -> None:
    history.send("nobody", b"x")
    assert history.proof().problems() == []


def test_a_refused_send_is_not_dead(history: History) -> None:
    history.send("a", b"x")
    history.send("a", b"y")
    proof = history.proof()
    assert proof.problems() == []
    row = proof.accounts["q.a"].counts
    assert (proof.refused, row.refused, row.dead, row.added) == (1, 1, 0, 1)
    history.drop(Role.DEAD, 0)
    assert history.proof().faults


def test_a_repeat_is_refused_and_has_no_dead_record(history: History) -> None:
    for _ in range(2):
        history.send("once", b"x", id="m")
        history.send("all", b"x", id="m")
    proof = history.proof()
    assert proof.problems() == []
    rows = proof.accounts
    assert (proof.inputs, proof.refused) == (4, 1), "other queues of the address took the repeat"
    assert [rows[queue].counts.added for queue in ("q.once", "q.all::once", "q.all::last")] == [
        1,
        1,
        2,
    ]
    assert rows["q.once"].counts.refused == 0


def test_a_repeat_in_a_commit_is_refused_alone(history: History) -> None:
    send_repeats_in_a_transaction(history)
    proof = history.proof()
    assert proof.problems() == []
    assert (proof.inputs, proof.refused, proof.accounts["q.once"].counts.added) == (4, 2, 2)


def send_repeats_in_a_transaction(history: History) -> None:
    history.say("begin", xid="repeats", owner="me")
    for message_id in ("first", "second", "second"):
        history.send("once", b"x", xid="repeats", xid_owner="me", id=message_id)
    history.send("once", b"x", id="first")
    history.say("prepare", xid="repeats")
    history.say("commit", xid="repeats")


def test_sends_of_an_open_transaction_are_pending(history: History) -> None:
    for xid, decision in {"yes": "commit", "no": "rollback_xid", "open": ""}.items():
        history.say("begin", xid=xid, owner="me")
        for key in ("a", "all", "no.queue"):
            history.send(key, b"x", xid=xid, xid_owner="me")
        if decision:
            history.say("prepare", xid=xid)
            history.say(decision, xid=xid)
    proof = history.proof()
    assert proof.problems() == []
    assert (proof.inputs, proof.refused, proof.rolled_back, proof.pending) == (9, 1, 3, 3)
    assert [proof.accounts[queue].counts.added for queue in ("q.a", "q.all::last")] == [1, 1]


def test_a_send_missing_from_its_commit_is_found(history: History) -> None:
    history.say("begin", xid="x", owner="me")
    history.send("a", b"x", xid="x", xid_owner="me")
    history.say("prepare", xid="x")
    history.say("commit", xid="x")
    history.change_line("added", lambda line: line.update(event="forgotten"))
    assert history.proof().missing == ["in/0/0"]
