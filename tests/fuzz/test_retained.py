"""What addresses retain, and what a crash has taken, is handled in bounded steps (R121)."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.levels import NEWEST
from ringfaust.protocol.stored_rows import without_bodies
from tests.fuzz.measured import Measured
from tests.fuzz.test_bytes import BODY, MANY, MOST_BYTES, SETTINGS, fill, kinds, largest, measured

# --- retained messages ---------------------------------------------------------------------------


def retaining(
    queues: str = "default", address: str = "default", level: int = NEWEST, **more: Any
) -> Measured:
    """An address that retains 60 MB; its declared queue was deleted, so its next use creates it."""
    settings = {"p": {"compat": queues, **more}, **SETTINGS}
    declared = {"retroactive_count": MANY, "compat": address, "subscriptions": {"one": {}}}
    it = Measured(Catalog({"q": {}}, settings, {"p": declared}))
    it.say("raise_level", level=level, reply="r")
    for number in range(MANY):
        it.take([it.message("p", BODY, (("ringfaust-priority", b"%d" % (number % 3)),))])
    it.say("delete_queue", queue="p::one", reply="r")
    assert all(reply["ok"] for reply in it.replies)
    it.costs.clear()
    it.events.clear()
    return it


def added(it: Measured) -> list[str]:
    """Ids of what the queue got, in order."""
    return [each["id"] for each in it.events if each["event"] == "added"]


FIRST_USES: dict[str, dict[str, Any]] = {
    "pause": {"queue": "p::one", "what": "pulling"},
    "configure": {"queue": "p::one", "settings": {"ring_size": MANY}},
    "configure_address": {"address": "p", "settings": {"routing": "anycast"}},
    "create_queue": {"queue": "p::two"},
    "subscribe": {"address": "p", "consumer": "me", "credit": 1, "subscription": "two"},
    "attach": {"queue": "p::one", "consumer": "me", "credit": 0},
    "purge": {"queue": "p::one"},
    "remove": {"queue": "p::one", "message": "in/0/7"},
}


@pytest.mark.parametrize("kind", FIRST_USES)
def test_a_declared_queue_gets_what_its_address_retains(kind: str) -> None:
    it = retaining()
    it.say(kind, **FIRST_USES[kind], reply="r")
    assert it.replies[-1]["ok"]
    queues = 2 if "two" in str(FIRST_USES[kind]) else 1
    assert added(it)[:MANY] == [f"in/0/{number}" for number in range(MANY)]
    assert len(added(it)) == queues * MANY
    assert largest(it) < MOST_BYTES


@pytest.mark.parametrize("kind", ["configure", "remove"])
def test_a_command_that_is_refused_leaves_the_queue_that_it_has_created(kind: str) -> None:
    it = retaining()
    wrong = {"message": "nobody"} if kind == "remove" else {"settings": {"ring_size": -7}}
    it.say(kind, queue="p::one", **wrong, reply="r")
    assert it.replies[-1]["ok"] is False
    assert len(added(it)) == MANY
    assert largest(it) < MOST_BYTES


@pytest.mark.parametrize("to", ["p", "p::one"])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_send_comes_after_what_is_retained(to: str, *, in_transaction: bool) -> None:
    it = retaining()
    headers = [("ringfaust-id", b"new")]
    if in_transaction:
        it.say("begin", xid="x", owner="o")
        headers += [("ringfaust-xid", b"x"), ("ringfaust-xid-owner", b"o")]
    it.take([it.message(to, b"", tuple(headers))])
    if in_transaction:
        it.say("prepare", xid="x")
        it.say("commit", xid="x", reply="r")
        assert it.replies[-1]["ok"]
    assert added(it) == [*(f"in/0/{number}" for number in range(MANY)), "new"]
    assert largest(it) < MOST_BYTES


def test_a_send_to_the_address_is_cut_at_the_first_level() -> None:
    """R129: version 0.2.0 can continue it."""
    it = retaining(level=1)
    it.take([it.message("p", b"")])
    assert len(added(it)) == MANY + 1
    assert largest(it) < MOST_BYTES


def test_a_send_that_is_refused_comes_after_what_is_retained() -> None:
    """It repeats the id of one of them (R119)."""
    it = retaining(dedup_window=60_000)
    for number in (3, MANY):
        it.take([it.message("p", b"", (("ringfaust-id", b"own%d" % number),))])
    it.say("delete_queue", queue="p::one")
    it.events.clear()
    it.take([it.message("p::one", b"", (("ringfaust-id", b"own3"),))])
    assert len(added(it)) == MANY
    (refused,) = [each for each in it.events if each["event"] == "refused"]
    assert refused["reason"] == "duplicate"
    assert largest(it) < MOST_BYTES


@pytest.mark.parametrize("address", ["default", "artemis"])
def test_a_queue_of_artemis_gets_it_by_priority(address: str) -> None:
    it = retaining("artemis", address)
    it.take([it.message("p", b"")])
    expected = [f"in/0/{n}" for rest in (2, 1, 0) for n in range(MANY) if n % 3 == rest]
    assert added(it)[:MANY] == expected
    assert largest(it) < MOST_BYTES
    assert len(it.costs) > 3


@pytest.mark.parametrize("how", ["configure_address", "apply"])
def test_an_address_that_retains_less_drops_the_rest(how: str) -> None:
    it = retaining()
    it.take([it.message("p", b"")])
    it.reopen()
    it._traces = True
    it.costs.clear()
    if how == "apply":
        document = {"addresses": {"p": {"retroactive_count": 1}}}
        it.say("apply", revision=1, configuration=document, who="me", text="", reply="r")
    else:
        it.say(how, address="p", settings={"retroactive_count": 1}, reply="r")
    assert it.replies[-1]["ok"]
    assert len(it.costs) > 3
    assert max(cost.grown_bytes for cost in it.costs) < limits.STEP_BYTES + (8 << 20)
    row = it.processor.state.address_rows.get("p")
    assert row.after - row.first == 1


# --- lost bodies ---------------------------------------------------------------------------------

NOT_KEPT = (("ringfaust-delivery-mode", b"non_persistent"),)


def test_the_look_for_lost_bodies_is_bounded() -> None:
    """All that is not lost is read, too."""
    it = measured()
    fill(it)
    it.take([it.message("q", b"", NOT_KEPT)])
    it.costs.clear()
    it.reopen()
    assert len(it.costs) > 3
    assert "lost" not in kinds(it)


def test_the_look_keeps_no_queue_that_has_lost_nothing() -> None:
    it = Measured(Catalog({f"q{number}": {} for number in range(50)}, SETTINGS))
    for number in range(50):
        it.take([it.message(f"q{number}", b"", NOT_KEPT)])
    it.reopen()
    assert not it.processor.state.queues
    it.take([it.message("q7", b"", NOT_KEPT)])
    assert it.processor.state.queues["q7"].counts.ready == 2


def test_what_a_crash_has_taken_is_lost_in_bounded_steps() -> None:
    it = Measured(Catalog({"q": {}, "r": {}}, SETTINGS))
    it._config = it._config._replace(step_transitions=10)
    due = (("ringfaust-deliver-at-ms", b"5000"),)
    for number in range(90):
        later = due if number % 2 else ()
        it.take([it.message("q" if number % 3 else "r", b"x", (*NOT_KEPT, *later))])
    it.store.apply(without_bodies(list(it.store.items_from(b""))))
    it.costs.clear()
    it.events.clear()
    it.reopen()
    assert kinds(it).count("lost") == 90
    assert len(it.costs) >= 9
    for name in "qr":
        it.take([it.message(name, b"")])
        counts = it.processor.state.queues[name].counts
        assert (counts.ready, counts.scheduled, counts.lost) == (1, 0, counts.added - 1)


def test_a_command_goes_on_after_the_look() -> None:
    """What it would meet has no body."""
    it = measured()
    fill(it)
    it.take([it.message("q", b"x", NOT_KEPT)])
    waiting = it._go_on
    it._go_on = lambda cause: None  # type: ignore[method-assign]
    it.say("purge", queue="q", reply="r")
    assert it.processor.is_unfinished
    it._go_on = waiting  # type: ignore[method-assign]
    it.store.apply(without_bodies(list(it.store.items_from(b""))))
    it.reopen()
    assert kinds(it).count("lost") == 1
    assert kinds(it).count("evicted") == MANY
    assert it.replies[-1]["ok"]


def test_what_a_start_rolls_back_and_finds_lost_names_its_delivery() -> None:
    it = Measured(Catalog({"q": {}}, SETTINGS))
    for _ in range(2):
        it.take([it.message("q", b"x", NOT_KEPT)])
    it.say("attach", queue="q", consumer="c", credit=1)
    it.say("begin", xid="x")
    it.say("ack", queue="q", consumer="c", message="in/0/0", xid="x")
    it.store.apply(without_bodies(list(it.store.items_from(b""))))
    it.events.clear()
    it.reopen()
    lost = [line for line in it.events if line["event"] == "lost"]
    assert [(line["by"], line.get("delivery")) for line in lost] == [("start", None), ("start", 1)]
