"""A message's life in sentences: each outcome, told from the events that the worker writes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ringfaust.client.lifecycles import Lifecycle, Search, Trace, place_of
from ringfaust.client.sentences import never_seen, story
from ringfaust.core import effects as e
from ringfaust.core.model import (
    DeadReason,
    Delivery,
    EvictReason,
    Message,
    Refusal,
    plain_position,
)
from ringfaust.errors import ProtocolError
from ringfaust.protocol.events import WRITERS, event_tail
from ringfaust.protocol.gaps import Gap, GapCause, gap_line
from ringfaust.protocol.lifecycle import EVENTS
from ringfaust.protocol.outputs import undecodable_line
from ringfaust.protocol.records import FetchedRecord, Payload

NOW_MS = 1_790_000_000_000
SENT = Message(
    "m", 1, plain_position(1), 4, NOW_MS, NOW_MS + 5_000, 0, "", 1, 0, (), 312,
    Payload(None, b"", (), "orders/0/1"),
)  # fmt: skip
HELD = Delivery(7, "billing", SENT._replace(handovers=1), NOW_MS)
AGAIN = SENT._replace(sequence=2, payload=SENT.payload._replace(source="orders/0/9"))


def line(effect: e.Effect, after_ms: int = 0) -> str:
    return WRITERS[type(effect)](effect, 1) + event_tail(NOW_MS + after_ms, "orders/0/1")


def evicted(reason: EvictReason, cause: str = "", message: Message = SENT) -> str:
    return line(
        e.Evicted("orders", message, reason, cause, 5, 5, NOW_MS + 192_000, "full"), 192_000
    )


ADDED = line(e.Added("orders", SENT))
DISPATCHED = line(e.Dispatched("orders", HELD), 10)
LIVES = {
    "evicted": [ADDED, evicted(EvictReason.OVERFLOW, "m-2")],
    "redriven": [
        line(e.Added("orders", AGAIN), 200_000),
        line(e.Dispatched("orders", HELD._replace(message=AGAIN)), 200_010),
        line(e.Acked("orders", HELD._replace(message=AGAIN)), 200_020),
    ],
}


def told(*lines: str) -> list[str]:
    search = Search(["m"])
    search.look("\n".join(lines).encode())
    return list(story(search.lifecycles()))


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (ADDED, "it is in the queue, ready to be delivered."),
        (
            line(e.Scheduled("orders", SENT._replace(due_ms=NOW_MS))),
            "it is scheduled for 2026-09-21 14:13:20.000Z.",
        ),
        (line(e.Due("orders", SENT)), "it is in the queue, ready to be delivered."),
        (DISPATCHED, "billing holds it and has not settled it yet."),
        (line(e.Acked("orders", HELD)), "acked by billing (delivery 7)."),
        (
            line(e.Returned("orders", HELD, SENT, 0)),
            "came back from billing unsettled and is ready again.",
        ),
        (
            evicted(EvictReason.OVERFLOW, "m-2"),
            "evicted to make room for m-2: the ring was full (5 of 5). "
            "It was 3 min 12 s old, never delivered.",
        ),
        (
            evicted(EvictReason.RETURN_OVERFLOW, "", SENT._replace(handovers=2)),
            "evicted when it came back: the ring was full (5 of 5). "
            "It was 3 min 12 s old, delivered 2 times.",
        ),
        (evicted(EvictReason.SCHEDULED_OVERFLOW), "evicted when it was due: the ring was full"),
        (evicted(EvictReason.LIMIT, "m-2"), "to make room for m-2: the queue was at its limit"),
        (evicted(EvictReason.SHRINK), "evicted because the ring was made smaller (5)"),
        (evicted(EvictReason.PURGE), "evicted because an operator purged or deleted the queue"),
        (
            line(e.Expired("orders", SENT, "")),
            "expired: its time to live ended at 2026-09-21 14:13:25.000Z.",
        ),
        (
            line(e.Dead("orders", SENT, DeadReason.REJECTED, "billing", "no amount")),
            "rejected by billing: no amount. It is in the dead topic.",
        ),
        (
            line(e.Dead("orders", SENT._replace(attempts=3), DeadReason.UNDELIVERABLE, "x", "")),
            "given up after 3 attempts. It is in the dead topic.",
        ),
        (
            line(e.Dead("orders", SENT._replace(sequence=0), DeadReason.LIMIT, "", "full")),
            "refused (limit): full. It is in the dead topic.",
        ),
        (line(e.Lost("orders", SENT)), "lost in a crash of the worker: it was not persistent."),
        (line(e.Removed("orders", SENT)), "removed by an operator, or cancelled."),
        (line(e.MovedOut("orders", SENT, "parked")), "moved to queue parked by an operator."),
        (line(e.Unrouted("orders", SENT)), "no queue of the address accepted it."),
    ],
    ids=lambda value: value[:24] if not value.startswith("{") else json.loads(value)["event"],
)
def test_the_last_event_is_the_answer(last: str, says: str) -> None:
    assert says in told(last)[0]


def test_a_refused_send_is_told() -> None:
    refused = line(e.Refused("orders", Refusal.DUPLICATE, "m", "sent before"))
    assert told(refused)[0] == "Message m in queue orders: refused (duplicate): sent before."


PENDING = line(e.Pending("orders", "x-1", "m"))
DECIDED = {committed: line(e.Decided("", "x-1", committed), 50) for committed in (True, False)}


def test_a_send_in_a_transaction_waits_for_its_decision() -> None:
    waits = "waits for the decision about transaction x-1."
    assert told(PENDING)[0] == f"Message m in queue orders: {waits}"
    undone = "transaction x-1 was rolled back: what was sent in it never entered a queue."
    assert told(PENDING, DECIDED[False])[0] == f"Message m in queue orders: {undone}"
    committed = told(PENDING, ADDED, DECIDED[True])
    assert committed[0].endswith("(number 1): it is in the queue, ready to be delivered.")
    assert len(committed) == 3


def test_an_ack_in_a_transaction_waits_for_its_decision() -> None:
    held = (ADDED, DISPATCHED, PENDING)
    assert told(*held)[0].endswith("(number 1): waits for the decision about transaction x-1.")
    back = line(e.Returned("orders", HELD, SENT, 0))
    assert "is ready again" in told(*held, back, DECIDED[False])[0]
    assert "acked by billing" in told(*held, line(e.Acked("orders", HELD)), DECIDED[True])[0]


@pytest.mark.parametrize("topic", ["orders", "hop"])
@pytest.mark.parametrize(
    "error", [ProtocolError("no id"), ProtocolError("skipped by ann: too large", "skipped")]
)
def test_a_record_that_is_in_no_queue_is_told_by_its_place(
    topic: str, error: ProtocolError
) -> None:
    """S1: its producer knows where it was written, not where a worker has copied it."""
    record, place = FetchedRecord(topic, 0, 1), "orders/0/1"
    search = Search([place])
    search.look(undecodable_line(record, place, error, 1, NOW_MS).encode())
    (headline, *_) = story(search.lifecycles())
    says = f"is in the dead topic, and in no queue ({error.reason}): {error}."
    assert headline == f"Message orders/0/1: {says}"


@pytest.mark.parametrize(("offset", "is_told"), [(2, False), (3, True), (9, True), (10, False)])
def test_a_record_that_was_deleted_before_it_was_read_is_told(offset: int, is_told: bool) -> None:
    search = Search([f"orders/0/{offset}"])
    search.look(gap_line(Gap("orders", 0, 3, 9, GapCause.DELETED), 1, 1, NOW_MS).encode())
    assert bool(search.lifecycles()) is is_told
    if is_told:
        assert "no worker has read it. orders, partition 0" in next(story(search.lifecycles()))


def test_every_event_about_a_message_has_a_sentence() -> None:
    others = {
        "attached",
        "detached",
        "configured",
        "configured_address",
        "paused",
        "applied",
        "deleted",
        "done",
    }
    assert others == {name for name, event in EVENTS.items() if event.says is None}


def test_each_event_of_a_life_has_its_time() -> None:
    assert told(ADDED, DISPATCHED) == [
        "Message m in queue orders (number 1): billing holds it and has not settled it yet.",
        "  2026-09-21 14:13:20.000Z  entered the queue from orders/0/1 with priority 4, 312 bytes.",
        "  2026-09-21 14:13:20.010Z  delivered to billing (delivery 7, attempt 1).",
    ]


def test_a_redriven_message_has_two_lives_that_name_each_other() -> None:
    search = Search(["m"])
    search.look("\n".join(text for life in LIVES.values() for text in life).encode())
    first, second = search.lifecycles()
    shown = [text for text in story([first, replace(second, redrives=1)]) if "Message" in text]
    assert shown[0].endswith("never delivered. Then it was redriven to queue orders (number 2).")
    assert shown[1].startswith("Message m in queue orders (number 2), redriven once: acked by")


def test_an_event_of_a_later_version_is_told_by_its_name() -> None:
    search = Search(["m"])
    search.take(json.loads(ADDED) | {"event": "archived"})
    assert next(story(search.lifecycles())).endswith(": archived.")


def test_a_message_is_found_by_its_record_under_whatever_id() -> None:
    search = Search(["orders/0/1"])
    search.look(f"{ADDED}\n{DISPATCHED}".encode())
    (found,) = search.lifecycles()
    assert (found.id, found.source, len(found.events)) == ("m", "orders/0/1", 2)
    assert isinstance(found, Lifecycle)


def test_a_message_that_another_one_evicts_is_no_part_of_that_ones_life() -> None:
    victim = SENT._replace(id="old", payload=SENT.payload._replace(source="orders/0/0"))
    search = Search(["orders/0/1"])
    search.look(f"{ADDED}\n{evicted(EvictReason.OVERFLOW, 'm', victim)}".encode())
    assert [each.id for each in search.lifecycles()] == ["m"]


def test_a_message_that_was_never_seen_has_likely_reasons() -> None:
    hint = "that record does not exist yet: the next offset of orders/0 is 3"
    said = list(never_seen("orders/0/7", Trace((), NOW_MS, 10, hint)))
    assert said[0] == "No event since 2026-09-21 14:13:20.000Z names message orders/0/7."
    assert said[1] == f"Its record: {hint}."
    assert any("--since" in each for each in said)
    assert any("no worker has read it" in each for each in said)
    assert any("no route" in each for each in said)


def test_a_place_is_a_topic_and_two_numbers_of_a_length_that_exists() -> None:
    assert place_of("a/b/0/17") == ("a/b", 0, 17)
    for other in ("a/0", "/0/17", "a/x/17", f"a/0/{'9' * 5_000}"):
        assert place_of(other) is None
