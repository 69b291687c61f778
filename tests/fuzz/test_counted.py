"""What is written or looked at beside a message's body counts, too (R121)."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from tests.fuzz.measured import Measured
from tests.fuzz.test_bytes import kinds

SNAIL = "\N{SNAIL}"
"""A character of four bytes in UTF-8, and of twelve in JSON."""
SELECTOR = f"x IS NULL OR x = '{SNAIL * 4_000}'"
STEP_BYTES = 512 * 1024
MOST_WRITTEN = 4 * STEP_BYTES


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that are full early, so that a test is quick."""
    monkeypatch.setattr(limits, "STEP_BYTES", STEP_BYTES)


def measured(**queue: Any) -> Measured:
    return Measured(Catalog({"q": queue}, {"#": {"consumer_timeout": 0}}), batch=5_000)


def most_written(it: Measured) -> int:
    return max(cost.written_bytes for cost in it.costs)


# --- what is written -----------------------------------------------------------------------------


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("then", ["detach", "purge"])
def test_empty_messages_with_long_names(then: str) -> None:
    it = measured()
    for number in range(200):
        name = f"{number:05}{SNAIL * 244}".encode()
        headers = (("ringfaust-id", name + SNAIL.encode() * 260), ("ringfaust-group", name))
        it.take([it.message("q", b"", headers)])
    it.costs.clear()
    if then == "purge":
        it.say("purge", queue="q")
    else:
        it.say("attach", queue="q", consumer=SNAIL * 249, credit=1_000)
        it.say("detach", queue="q", consumer=SNAIL * 249)
    assert most_written(it) < MOST_WRITTEN


@pytest.mark.usefixtures("small_steps")
def test_empty_messages_that_many_have_held() -> None:
    it = measured(max_attempts=-1)
    it.take([it.message("q", b"") for _ in range(60)])
    for number in range(65):
        it.costs.clear()
        name = f"{number:02}{SNAIL * 247}"
        it.say("attach", queue="q", consumer=name, credit=60)
        it.say("detach", queue="q", consumer=name)
    assert most_written(it) < MOST_WRITTEN


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("then", ["heartbeat", "rollback", "configure"])
def test_rows_of_consumers_with_long_selectors(then: str) -> None:
    it = measured(max_active_consumers=1, max_backup_consumers=999)
    for number in range(100):
        session = f"s{number // 10}"
        it.say(
            "attach", queue="q", consumer=f"k{number}", credit=1, selector=SELECTOR, session=session
        )
    it.costs.clear()
    it.now_ms += 5
    if then == "heartbeat":
        it.take([it.command(then, queue="q", consumer=f"k{number}") for number in range(100)])
    elif then == "rollback":
        it.take([it.command(then, session=f"s{number}", reply="r") for number in range(10)])
        assert all(reply["ok"] for reply in it.replies)
    else:
        it.say(then, queue="q", settings={"max_active_consumers": -1})
        assert kinds(it).count("attached") >= 99
    assert most_written(it) < MOST_WRITTEN


@pytest.mark.usefixtures("small_steps")
def test_a_send_writes_the_rows_of_queues_with_long_selectors() -> None:
    it = Measured(Catalog({}, {}, {"a": {}}), batch=1)
    for number in range(40):
        it.say("create_queue", queue=f"a::s{number}", settings={"selector": SELECTOR})
    it.costs.clear()
    it.take([it.message("a", b"")])
    assert most_written(it) < MOST_WRITTEN


@pytest.mark.usefixtures("small_steps")
def test_a_send_writes_the_last_ids_of_many_queues() -> None:
    subscriptions = {f"s{number}": {"dedup_window": 10**9} for number in range(10)}
    it = Measured(Catalog({}, {}, {"a": {"subscriptions": subscriptions}}), batch=1)
    for number in range(100):
        it.costs.clear()
        it.take([it.message("a", b"", (("ringfaust-id", f"{number}{SNAIL * 500}".encode()),))])
    assert most_written(it) < MOST_WRITTEN


# --- what is looked at ---------------------------------------------------------------------------


def test_acks_of_what_is_not_held_are_a_small_batch() -> None:
    it = measured()
    it.say("attach", queue="q", consumer="k", credit=1)
    it.costs.clear()
    ack = {"queue": "q", "consumer": "k", "deliveries": [[1, "a"]] * 1_000}
    it.take([it.command("ack_many", **ack) for _ in range(20)])
    assert len(it.costs) >= 4


@pytest.mark.usefixtures("small_steps")
def test_begins_look_at_all_transactions() -> None:
    it = measured()
    it.take([it.command("begin", xid=f"x{number}", owner="me") for number in range(100)])
    it.costs.clear()
    it.take([it.command("begin", xid=f"y{number}", owner="me") for number in range(400)])
    assert len(it.costs) > 10


@pytest.mark.usefixtures("small_steps")
def test_acks_of_all_before_look_at_all_that_is_held() -> None:
    it = measured()
    it.say("attach", queue="q", consumer="k", credit=3_000, ack_mode="client")
    it.take([it.message("q", b"") for _ in range(3_000)])
    it.costs.clear()
    it.take([it.command("ack", queue="q", consumer="k", message=f"in/0/{n}") for n in range(200)])
    assert len(it.costs) > 5


@pytest.mark.usefixtures("small_steps")
def test_refused_acks_look_at_what_is_settled_in_transactions() -> None:
    it = measured()
    it.say("attach", queue="q", consumer="k", credit=3_000, ack_mode="client")
    it.take([it.message("q", b"") for _ in range(3_000)])
    it.say("begin", xid="x", owner="me")
    it.say("ack", queue="q", consumer="k", message="in/0/2999", xid="x", owner="me", reply="r")
    it.say("detach", queue="q", consumer="k", reply="r")
    assert all(reply["ok"] for reply in it.replies)
    it.say("attach", queue="q", consumer="k", credit=1)
    it.costs.clear()
    it.take([it.command("ack", queue="q", consumer="k", message="unknown") for _ in range(200)])
    assert len(it.costs) > 5


def test_sends_to_queues_full_of_expired_messages_are_a_small_batch() -> None:
    it = Measured(Catalog({"#": {}}, {}), batch=5_000)
    expires = (("ringfaust-expires-at-ms", b"5000"),)
    for number in range(3):
        it.take([it.message(f"q{number}", b"", expires) for _ in range(5_000)])
    it.costs.clear()
    it.now_ms = 6_000
    it.take([it.message(f"q{number}", b"") for number in range(3)])
    assert len(it.costs) >= 3


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_steps")
def test_a_sweep_of_many_queues_with_a_long_selector() -> None:
    """It stored the rows of 5,000 in one transaction: 240 MB."""
    it = Measured(Catalog({"#": {}}, {"#": {"selector": SELECTOR, "consumer_timeout": 30_000}}))
    names = [f"q{number}" for number in range(100)]
    it.take([it.command("attach", queue=name, consumer="c", credit=1) for name in names])
    it.now_ms += 15_000
    it.take([it.command("heartbeat", queue=name, consumer="c") for name in names])
    it.now_ms += 15_001
    it.costs.clear()
    it.tick()
    assert len(it.costs) > 1
    assert most_written(it) < MOST_WRITTEN


@pytest.mark.usefixtures("small_steps")
def test_a_batch_for_many_queues_with_a_long_selector() -> None:
    it = Measured(Catalog({"#": {"selector": SELECTOR}}, {}), batch=1_000)
    it.take([it.message(f"q{number}", b"") for number in range(100)])
    assert kinds(it).count("added") == 100
    assert len(it.costs) > 1
    assert most_written(it) < MOST_WRITTEN


@pytest.mark.usefixtures("small_steps")
def test_a_deleted_queue_with_many_groups() -> None:
    """100,000 idle groups with long names were erased at once: 82 MB, and 2.3 s."""
    it = Measured(Catalog({"#": {"max_groups": 10_000}}, {}))
    it.say("attach", queue="q", consumer="c", credit=1, ack_mode="none")
    groups = [(("ringfaust-group", f"{SNAIL * 200}{number}".encode()),) for number in range(1_000)]
    it.take([it.message("q", b"", group) for group in groups])
    it.costs.clear()
    it.say("delete_queue", queue="q", reply="r")
    assert it.replies[-1]["ok"]
    assert len(it.costs) > 1
    assert most_written(it) < MOST_WRITTEN


@pytest.mark.usefixtures("small_steps")
def test_queues_of_an_address_that_a_send_decodes() -> None:
    """1,200 with 120 deliveries each took 1.1 s and 86 MB in one transaction."""
    queues = {f"s{number}": {"consumer_timeout": 0} for number in range(50)}
    it = Measured(Catalog({}, {}, {"p": {"subscriptions": queues}}), batch=500)
    names = [f"p::{name}" for name in queues]
    it.take([it.command("attach", queue=name, consumer="c", credit=100) for name in names])
    it.take([it.message("p", b"") for _ in range(100)])
    it.reopen()
    it.costs.clear()
    it.take([it.message("p", b"")])
    assert kinds(it).count("added") == 50 * 101
    assert len(it.costs) > 2
