"""Every history of events that no engine writes is a fault."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core.model import Counts
from ringfaust.testing.accounts.event_accounts import EventAccounts


def line(event: str, step: int, sequence: int = 1, **fields: Any) -> dict[str, Any]:
    about = {"queue": "q", "sequence": sequence, "id": "m", "source": "in/0/0"}
    return {"step": step, "event": event, "by": f"in/0/{step}", **about, **fields}


ADDED = line("added", 1)
SCHEDULED = line("scheduled", 1)
DISPATCHED = line("dispatched", 2, delivery=1)
ENDS = {
    "acked": line("acked", 3, delivery=1),
    "dead": line("dead", 3, reason="rejected"),
    "return_overflow": line("evicted", 3, reason="return_overflow"),
    "expired": line("expired", 3, delivery=1),
    "lost": line("lost", 3),
    "returned": line("returned", 3, delivery=1),
    "delayed": line("returned", 3, delivery=1, due_ms=9),
}
WAITING_ENDS = {
    "removed": line("removed", 2),
    "moved_out": line("moved_out", 2),
    "limit": line("evicted", 2, reason="limit"),
    "expired": line("expired", 2, delivery=0),
    "lost": line("lost", 2),
}


def faults(*lines: dict[str, Any]) -> list[str]:
    found: list[str] = []
    accounts = EventAccounts(lambda text, queue: found.append(text))
    for each in lines:
        accounts.take(0, each)
    return found


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_delivery_ends_once_and_only_if_it_began(end: dict[str, Any]) -> None:
    assert faults(ADDED, DISPATCHED, end) == []
    assert faults(end)
    assert end["event"] == "lost" or faults(ADDED, end)
    assert faults(ADDED, DISPATCHED, end, {**end, "step": 4})


@pytest.mark.parametrize("end", WAITING_ENDS.values(), ids=WAITING_ENDS)
def test_a_message_that_waits_ends_once_and_not_while_it_is_delivered(end: dict[str, Any]) -> None:
    for entry in (ADDED, SCHEDULED):
        assert faults(entry, end) == []
        assert faults(entry, end, {**end, "step": 4})
    assert end["event"] == "lost" or faults(ADDED, DISPATCHED, {**end, "step": 3})


@pytest.mark.parametrize("name", ["acked", "expired", "returned", "delayed"])
def test_an_event_ends_the_delivery_that_it_names(name: str) -> None:
    (text,) = faults(ADDED, DISPATCHED, {**ENDS[name], "delivery": 2})
    assert "from another delivery" in text


def test_only_a_scheduled_message_comes_due() -> None:
    due = line("due", 2, due_ms=5)
    assert faults(SCHEDULED, due) == []
    assert faults(ADDED, due) == ["message 1 of q was due while ready"]
    assert faults(SCHEDULED, line("dispatched", 2, delivery=1))


def test_an_overflow_evicts_ready_messages_only() -> None:
    evicted = line("evicted", 2, reason="overflow")
    assert faults(ADDED, evicted) == []
    assert faults(SCHEDULED, evicted) == ["message 1 of q was evicted while scheduled"]


def test_numbers_have_no_gap() -> None:
    assert faults(line("added", 1, 2)) == ["message 2 of q was added after message 0"]
    assert faults(ADDED, {**ADDED, "step": 2})
    assert faults(ADDED, {**DISPATCHED, "delivery": 2}) == ["partition 0: delivery 2 follows 0"]


def test_steps_do_not_go_back_and_have_one_cause() -> None:
    assert faults(line("added", 2), line("added", 1, 2))
    assert faults(ADDED, line("added", 1, 2, by="in/0/9"))
    assert faults(ADDED, line("added", 1, 2)) == []
    idle = line("done", 1, by="control/0/7", command="tick")
    refused = line("dead", 1, 0, by="in/0/9", reason="limit")
    assert faults(ADDED, line("refused", 0), idle, refused, line("added", 1, 2)) == []
    assert faults(ADDED, {**idle, "step": 0})


def test_what_a_restart_finds_lost_belongs_to_the_step_that_it_interrupts() -> None:
    """R82: the look comes first, and then the rest of a large command (R114)."""
    lost = line("lost", 3, 2, by="start")
    rest = {**DISPATCHED, "step": 3, "by": "in/0/3"}
    history = (ADDED, line("added", 2, 2), line("applied", 3, 0), lost, rest)
    assert faults(*history) == []
    assert faults(*history[:3], {**lost, "step": 2})
    assert faults(*history[:3], {**lost, "by": "in/0/9"})


def test_a_queue_is_empty_when_it_is_deleted_and_had_these_counts() -> None:
    counts = Counts(added=1, acked=1).as_dict()
    history = (ADDED, DISPATCHED, ENDS["acked"])
    assert faults(*history, line("deleted", 4, counts=counts), line("added", 5)) == []
    assert len(faults(*history, line("deleted", 4, counts=counts | {"acked": 2}))) == 1
    assert "held when its queue was deleted" in faults(ADDED, line("deleted", 4, counts=counts))[0]


def test_a_refused_message_is_counted_and_not_held() -> None:
    accounts = EventAccounts(lambda text, queue: pytest.fail(text))
    assert accounts.take(0, line("dead", 1, 0, reason="limit")) is None
    assert accounts.queue("q").counts == Counts(refused=1)
    assert not accounts.queue("q").held


def test_an_unknown_event_is_a_fault() -> None:
    assert faults(line("forgotten", 1)) == ["there is no event forgotten"]
