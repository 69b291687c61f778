"""Every transaction is bounded, whatever is due, sent or settled together (R120, R121)."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from tests.fuzz.measured import Measured

BODY = b"x" * 300_000
MANY = 200
"""Messages of 60 MB together."""
MOST_BYTES = 3 * limits.STEP_BYTES
"""A message that is evicted or dispatched is in a record and in a row; a step exceeds its bound by
one message."""
SETTINGS = {"#": {"consumer_timeout": 0}}


def measured(**settings: Any) -> Measured:
    return Measured(Catalog({"q": settings}, SETTINGS))


def largest(it: Measured) -> int:
    return max(cost.written_bytes for cost in it.costs)


def kinds(it: Measured) -> list[str]:
    return [event["event"] for event in it.events]


def fill(it: Measured, *headers: tuple[str, bytes], bodies: int = MANY) -> None:
    for _ in range(bodies):
        it.take([it.message("q", BODY, headers)])
    it.costs.clear()


@pytest.mark.parametrize("compat", ["default", "artemis"])
def test_messages_that_come_due_together(compat: str) -> None:
    it = measured(compat=compat)
    fill(it, ("ringfaust-deliver-at-ms", b"5000"))
    it.now_ms = 6_000
    it.tick()
    assert kinds(it).count("due") == MANY
    assert largest(it) < MOST_BYTES
    assert len(it.costs) > 2


def test_messages_that_come_due_for_a_consumer() -> None:
    it = measured(compat="artemis")
    it.say("attach", queue="q", consumer="me", credit=1_000)
    fill(it, ("ringfaust-deliver-at-ms", b"5000"))
    it.now_ms = 6_000
    it.tick()
    assert kinds(it).count("dispatched") == MANY
    assert largest(it) < MOST_BYTES


def test_messages_that_expire_together() -> None:
    it = measured()
    fill(it, ("ringfaust-expires-at-ms", b"5000"))
    it.now_ms = 6_000
    it.tick()
    assert kinds(it).count("expired") == MANY
    assert largest(it) < MOST_BYTES


@pytest.mark.parametrize("compat", ["default", "artemis"])
def test_messages_that_a_command_meets_after_they_expired(compat: str) -> None:
    it = measured(compat=compat)
    if compat == "artemis":
        it.say("attach", queue="q", consumer="me", credit=0)
    fill(it, ("ringfaust-expires-at-ms", b"5000"))
    it.now_ms = 6_000
    it.take([it.message("q", b"new")])
    it.tick()
    assert kinds(it).count("expired") == MANY
    assert largest(it) < MOST_BYTES


def test_small_messages_that_evict_large_ones() -> None:
    it = measured(ring_size=MANY)
    fill(it)
    it.take([it.message("q", b"new") for _ in range(MANY)])
    assert kinds(it).count("evicted") == MANY
    assert largest(it) < MOST_BYTES


def test_messages_with_thousands_of_headers_that_no_selector_matches() -> None:
    """Each header is decoded and compared, however small it is (found by `make fuzz`)."""
    it = measured()
    headers = tuple((f"h{number}", b"") for number in range(5_000))
    for _ in range(100):
        it.take([it.message("q", b"x", headers)])
    it.costs.clear()
    it.say("attach", queue="q", consumer="picky", credit=1, selector="a = 1")
    most_headers = limits.STEP_BYTES // limits.HEADER_COST_BYTES
    assert len(it.costs) > 100 * 5_000 // (most_headers + 5_000)
    assert "dispatched" not in kinds(it)


def test_large_messages_that_are_rejected_one_by_one() -> None:
    it = measured()
    it.say("attach", queue="q", consumer="me", credit=1_000)
    fill(it)
    rejects = [
        it.command("reject", queue="q", consumer="me", message=f"in/0/{number}", text="bad")
        for number in range(MANY)
    ]
    it.take(rejects)
    assert kinds(it).count("dead") == MANY
    assert largest(it) < MOST_BYTES


# --- addresses -----------------------------------------------------------------------------------


def with_subscriptions(count: int, **address: Any) -> Measured:
    it = Measured(Catalog({}, SETTINGS, {"prices": address}))
    for number in range(count):
        it.say("create_queue", queue=f"prices::{number}", settings={"ring_size": 1})
    it.costs.clear()
    return it


def test_a_send_to_many_subscriptions() -> None:
    it = with_subscriptions(MANY)
    it.take([it.message("prices", BODY)])
    it.take([it.message("prices", b"small")])
    assert kinds(it).count("added") == 2 * MANY
    assert kinds(it).count("evicted") == MANY
    assert largest(it) < MOST_BYTES


def test_a_send_in_a_transaction_to_many_subscriptions() -> None:
    it = with_subscriptions(MANY)
    it.say("begin", xid="x", owner="o")
    in_x = (("ringfaust-xid", b"x"), ("ringfaust-xid-owner", b"o"))
    it.take([it.message("prices", body, in_x) for body in (BODY, b"small")])
    it.say("prepare", xid="x")
    it.say("commit", xid="x", reply="r")
    assert kinds(it).count("added") == 2 * MANY
    assert kinds(it)[-2:] == ["decided", "done"]
    assert largest(it) < MOST_BYTES


@pytest.mark.parametrize("end", ["rollback_xid", "timeout"])
def test_acks_of_large_messages_in_a_transaction(end: str) -> None:
    """In mode `client` one ack settles them all; each stays in the row of its delivery."""
    it = measured()
    it.say("attach", queue="q", consumer="me", credit=MANY, ack_mode="client")
    fill(it)
    it.say("begin", xid="x", timeout_ms=1_000)
    last = max(it.processor.state.queues["q"].deliveries)[1]
    it.say("ack", queue="q", consumer="me", message=last.message.id, xid="x", reply="r")
    assert it.replies[-1]["ok"]
    assert kinds(it).count("pending") == MANY
    assert largest(it) < MOST_BYTES
    it.say("detach", queue="q", consumer="me")
    it.costs.clear()
    if end == "timeout":
        it.now_ms += 1_000
        it.tick()
    else:
        it.say("rollback_xid", xid="x")
    assert kinds(it).count("returned") == MANY
    assert largest(it) < MOST_BYTES
    assert len(it.costs) > 2


def test_an_ack_of_more_than_fit_into_a_transaction_is_refused() -> None:
    it, most = measured(), limits.XID_OPERATIONS
    it.say("attach", queue="q", consumer="me", credit=most + 1, ack_mode="client")
    it.take([it.message("q", b"", (("ringfaust-id", b"m%d" % n),)) for n in range(most + 1)])
    it.say("begin", xid="x")
    answers = []
    for number in (most, most - 1, most):
        it.say("ack", queue="q", consumer="me", message=f"m{number}", xid="x", reply="r")
        answers.append(it.replies[-1].get("reason"))
    assert answers == ["limit", None, "limit"]
    assert kinds(it).count("pending") == most
    for kind in ("prepare", "commit"):  # a full one can be decided
        it.say(kind, xid="x", reply="r")
        assert it.replies[-1]["ok"]
    assert kinds(it).count("acked") == most


def test_the_transactions_of_one_owner_leave_room_for_others() -> None:
    it = measured()
    for number in range(limits.XIDS_OF_OWNER):
        it.say("begin", xid=f"x{number}", owner="me", reply="r")
        assert it.replies[-1]["ok"]
    it.say("begin", xid="one more", owner="me", reply="r")
    assert it.replies[-1]["reason"] == "limit"
    it.say("begin", xid="another's", owner="other", reply="r")
    assert it.replies[-1]["ok"]
    it.say("rollback_xid", xid="x7")
    it.say("begin", xid="one more", owner="me", reply="r")
    assert it.replies[-1]["ok"]


def test_a_crash_in_the_middle_of_a_send_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of it is stored with its message."""
    it, other = (with_subscriptions(MANY, retroactive_count=1) for _ in range(2))
    go_on = other._go_on
    monkeypatch.setattr(other, "_go_on", lambda cause: None)
    for each in (it, other):
        each.take([each.message("prices", BODY, (("color", b"red"),))])
    assert other.processor.is_unfinished
    monkeypatch.setattr(other, "_go_on", go_on)
    other.reopen()
    assert other.events == it.events
    assert other.store._values == it.store._values


def test_an_address_takes_only_as_many_subscriptions_as_its_row_holds() -> None:
    it = Measured(Catalog({}, SETTINGS, {"prices": {}}))
    for number in range(750):
        name = f"prices::{number:03}" + "\u20ac" * 235
        it.say("create_queue", queue=name, settings={}, reply="r")
    refused = [reply for reply in it.replies if not reply["ok"]]
    taken = len(it.replies) - len(refused)
    assert 100 < taken < 750
    assert {reply["reason"] for reply in refused} == {"limit"}
    assert f"{limits.SUBSCRIPTIONS_BYTES:,} bytes" in refused[0]["text"]
    assert max(cost.largest_row for cost in it.costs) < 900_000
    # Nothing else about the address has changed.
    it.say("subscribe", address="prices", consumer="me", credit=1, reply="r")
    it.take([it.message("prices", b"x")])
    assert kinds(it).count("added") == taken + it.replies[-1]["ok"]


def test_an_address_takes_a_limited_number_of_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SUBSCRIPTIONS", 3)
    it = with_subscriptions(2)
    it.say("subscribe", address="prices", consumer="a", credit=1, reply="r")
    it.say("subscribe", address="prices", consumer="b", credit=1, reply="r")
    assert [reply["ok"] for reply in it.replies] == [True, False]
    assert "it takes at most 3 queues" in it.replies[1]["text"]


# --- sessions ------------------------------------------------------------------------------------


def test_what_is_left_of_a_rollback_fits_into_a_row() -> None:
    """It names the session, and not each of its consumers (R120)."""
    it = measured()
    for number in range(limits.SESSION_CONSUMERS):
        name = f"{number:04}" + "\u20ac" * 245
        it.say("attach", queue="q", consumer=name, credit=3, session="s", reply="r")
    fill(it)
    it.say("rollback", session="s", reply="r")
    assert it.replies[-1]["ok"]
    assert kinds(it).count("returned") == MANY
    assert len(it.costs) > 2
    assert max(cost.largest_row for cost in it.costs) < 1_000_000
    assert all(reply["ok"] for reply in it.replies)
