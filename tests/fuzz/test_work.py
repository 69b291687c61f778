"""Every transaction is bounded in what it looks at and holds, whoever asks for it (R114, R121)."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.selector import compile_selector, like
from ringfaust.processor import queries
from tests.fuzz.measured import Measured
from tests.fuzz.test_bytes import BODY, MANY, MOST_BYTES, fill, kinds, largest, measured

CONSUMERS = 100
IDS = [(("ringfaust-id", b"m%d" % number),) for number in range(6_000)]
MOST_GROWN = limits.STEP_BYTES + (2 << 20)


def attach(it: Measured, queue: str = "q", **more: Any) -> None:
    it.say("attach", queue=queue, consumer="me", credit=1_000, reply="r", **more)
    assert it.replies[-1]["ok"]


# --- a batch of commands -------------------------------------------------------------------------


def test_commands_that_look_at_many_messages_are_no_batch() -> None:
    it = measured()
    it.take([it.message("q", b"", IDS[number]) for number in range(4_900)])
    it.costs.clear()
    it.take([it.command("remove", queue="q", message="unknown") for _ in range(40)])
    assert len(it.costs) >= 20


@pytest.mark.parametrize("kind", ["attach", "configure"])
def test_commands_with_long_selectors_are_a_small_batch(kind: str) -> None:
    """To read one takes as long as hundreds of messages."""
    it = measured()
    selector = " OR ".join(f"a{number} = {number}" for number in range(280))
    commands = []
    for number in range(40):
        own = f"b = {number} OR {selector}"
        fields = {"consumer": f"k{number}", "credit": 1, "selector": own}
        if kind == "configure":
            fields = {"settings": {"selector": own}}
        commands.append(it.command(kind, queue="q", reply="r", **fields))
    it.take(commands)
    assert all(reply["ok"] for reply in it.replies)
    assert len(it.costs) > 3


# --- many consumers ------------------------------------------------------------------------------


def with_consumers(monkeypatch: pytest.MonkeyPatch) -> Measured:
    it = Measured(Catalog({"q": {}}, {"#": {"consumer_timeout": 1_000}}))
    for each in ("CONSUMER_COST_BYTES", "LOOK_COST_BYTES"):
        monkeypatch.setattr(limits, each, limits.STEP_BYTES // 1_000)
    names = [f"k{number}" for number in range(CONSUMERS)]
    it.take([it.command("attach", queue="q", consumer=each, credit=1) for each in names])
    assert len(it.costs) > 3, "each looks at those that are there"
    it.costs.clear()
    return it


def test_consumers_that_time_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    it = with_consumers(monkeypatch)
    it.now_ms = 9_000
    it.tick()
    assert kinds(it).count("detached") == CONSUMERS
    assert len(it.costs) > 3


def test_a_queue_that_is_deleted_with_its_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    it = with_consumers(monkeypatch)
    it.say("delete_queue", queue="q", reply="r")
    assert it.replies[-1]["ok"]
    assert kinds(it).count("detached") == CONSUMERS
    assert len(it.costs) > 3


def test_messages_beside_many_consumers_are_not_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each message is offered to all: 4,000 beside as many consumers of credit 1 took 1.2 s."""
    it = with_consumers(monkeypatch)
    it.say("pause", queue="q", what="dispatch")
    it.take([it.message("q", b"") for _ in range(CONSUMERS)])
    it.costs.clear()
    it.say("resume", queue="q", what="dispatch")
    assert kinds(it).count("dispatched") == CONSUMERS
    assert len(it.costs) > 3


def test_a_queue_that_is_full_asks_who_would_take_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = with_consumers(monkeypatch)
    it.say("configure", queue="q", settings={"when_full": "reject_newest", "max_messages": 0})
    it.costs.clear()
    it.take([it.message("q", b"") for _ in range(CONSUMERS)])
    assert kinds(it).count("dead") == CONSUMERS
    assert len(it.costs) > 3


def test_a_session_has_a_bounded_number_of_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rollback is a sign of life of each, so it stores them all."""
    monkeypatch.setattr(limits, "SESSION_CONSUMERS", 2)
    it = measured()
    for consumer in "abc":
        it.say("attach", queue="q", consumer=consumer, credit=1, session="s", reply="r")
    assert [reply.get("reason") for reply in it.replies] == [None, None, "limit"]
    it.say("detach", queue="q", consumer="b")
    it.say("attach", queue="q", consumer="c", credit=1, session="s", reply="r")
    assert it.replies[-1]["ok"]


# --- large messages ------------------------------------------------------------------------------


def test_an_ack_in_a_session_whose_queues_have_expired_messages() -> None:
    it = Measured(Catalog({"#": {}}, {"#": {"consumer_timeout": 0}}))
    for number in range(20):
        attach(it, f"q{number}", session="s", ack_mode="client")
        it.take([it.message(f"q{number}", b"", IDS[number])])
        late = (("ringfaust-expires-at-ms", b"5000"),)
        it.say("pause", queue=f"q{number}", what="dispatch")
        for _ in range(MANY // 20):
            it.take([it.message(f"q{number}", BODY, late)])
    it.costs.clear()
    it.now_ms = 6_000
    it.say("ack", queue="q19", consumer="me", message="m19", reply="r")
    assert it.replies[-1]["ok"]
    it.tick()
    assert kinds(it).count("acked") == 20
    assert kinds(it).count("expired") == MANY
    assert largest(it) < MOST_BYTES


def test_a_consumer_leaves_large_messages_to_a_transaction() -> None:
    it = measured()
    attach(it, ack_mode="client")
    fill(it)
    it.say("begin", xid="x")
    last = max(it.processor.state.queues["q"].deliveries)[1]
    it.say("ack", queue="q", consumer="me", message=last.message.id, xid="x", reply="r")
    assert it.replies[-1]["ok"]
    it.costs.clear()
    it.say("detach", queue="q", consumer="me", reply="r")
    assert it.replies[-1]["ok"]
    assert largest(it) < MOST_BYTES
    it.reopen()  # rolled back: it was not prepared
    assert kinds(it).count("returned") == MANY


def held_after_a_restart() -> tuple[Measured, list[list[Any]]]:
    it = measured()
    attach(it)
    for number in range(MANY):
        it.take([it.message("q", BODY, IDS[number])])
    held = [[number, each.message.id] for number, each in it.processor.state.queues["q"].deliveries]
    it.reopen()
    it._traces = True
    it.costs.clear()
    return it, held


def test_many_acks_of_large_messages_in_one_command() -> None:
    it, held = held_after_a_restart()
    it.say("ack_many", queue="q", consumer="me", deliveries=[*held, held[0]], reply="r")
    assert it.replies[-1]["ok"]
    assert kinds(it).count("acked") == MANY
    assert kinds(it).count("refused") == 1
    assert max(cost.grown_bytes for cost in it.costs) < MOST_GROWN


def test_scheduled_messages_beside_one_that_is_not_persistent() -> None:
    """Those without a body are looked for when the queue is first used."""
    it = measured()
    later = (("ringfaust-deliver-at-ms", b"500000"),)
    fill(it, *later)
    it.take([it.message("q", b"", (*later, ("ringfaust-delivery-mode", b"non_persistent")))])
    it.reopen()
    it._traces = True
    it.costs.clear()
    it.take([it.message("q", b"")])
    assert max(cost.grown_bytes for cost in it.costs) < MOST_GROWN


@pytest.mark.parametrize("kind", ["browse", "list"])
def test_a_question_looks_at_a_bounded_number_of_bytes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MOST_BYTES", 10 * len(BODY))
    it = measured()
    fill(it, bodies=30)
    if kind == "list":
        it.say("list", queue="q", limit=1_000, reply="r")
        assert 10 <= len(it.replies[-1]["answer"]["ready"]) < 30
        return
    after, pages = "", 0
    while after is not None:
        it.say("browse", queue="q", selector="a = 1", after=after, reply="r")
        answer = it.replies[-1]["answer"]
        assert not answer["messages"]
        after, pages = answer["next"], pages + 1
    assert pages == 3 + 1


# --- ids ---------------------------------------------------------------------------------------


def test_acks_by_many_consumers_that_remember_long_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rewrites a page of its consumer's ended deliveries: 600 kB with such ids."""
    monkeypatch.setattr(limits, "STEP_BYTES", 2 << 20)
    it = measured()
    consumers, each = 40, 40
    for number in range(consumers):
        selector = f"kind = {number}"
        it.say("attach", queue="q", consumer=f"k{number}", credit=1_000, selector=selector)
    ids = [[f"{k} {n} ".ljust(512, "\U0001f40c") for n in range(each)] for k in range(consumers)]
    for number, own in enumerate(ids):
        kind = ("kind", b"%d" % number)
        it.take([it.message("q", b"", (("ringfaust-id", id_.encode()), kind)) for id_ in own])
        it.take([acked(it, number, id_) for id_ in own[1:]])
    it.costs.clear()
    it.take([acked(it, number, own[0]) for number, own in enumerate(ids)])
    assert kinds(it).count("acked") == consumers * each
    assert max(cost.row_bytes for cost in it.costs) < 2 * limits.STEP_BYTES


def acked(it: Measured, consumer: int, id_: str) -> Any:
    return it.command("ack", queue="q", consumer=f"k{consumer}", message=id_)


# --- with Artemis ------------------------------------------------------------------------------


def held_with_artemis(**settings: Any) -> Measured:
    it = Measured(Catalog({"q": {"compat": "artemis", **settings}}, {"#": {"consumer_timeout": 0}}))
    it.say("raise_level", level=2)
    attach(it, session="s", ack_mode="client")
    for number in range(MANY):
        it.take([it.message("q", BODY, IDS[number])])
    assert kinds(it).count("dispatched") == MANY
    it.reopen()
    it._traces = True
    it.costs.clear()
    return it


def check_bounds(it: Measured) -> None:
    assert largest(it) < MOST_BYTES
    assert max(cost.grown_bytes for cost in it.costs) < 3 * MOST_GROWN
    assert max(cost.largest_row for cost in it.costs) < 1_000_000
    assert len(it.costs) > 3


@pytest.mark.parametrize("end", ["detach", "recover", "delete_queue", "timeout"])
def test_artemis_returns_large_messages_step_by_step(end: str) -> None:
    """The set is decided about as a whole, but not in one transaction (C2)."""
    it = held_with_artemis(consumer_timeout=1_000)
    if end == "timeout":
        it.now_ms += 60_000
        it.tick()
    elif end == "delete_queue":
        it.say(end, queue="q")
    else:
        it.say(end, queue="q", consumer="me")
    assert kinds(it).count("returned") == MANY
    check_bounds(it)


@pytest.mark.parametrize("acked", [0, 1, MANY // 2, MANY])
def test_the_rollback_of_a_session_with_artemis_goes_on_step_by_step(acked: int) -> None:
    it = held_with_artemis(max_attempts=1)
    acks = [{"queue": "q", "consumer": "me", "message": f"m{acked - 1}"}]
    it.say("rollback", session="s", acked=acks if acked else [], reply="r")
    assert it.replies[-1]["ok"]
    assert kinds(it).count("dead") == acked, "what was acked was tried"
    assert kinds(it).count("returned") == MANY - acked
    gone = [each["event"] for each in it.events if each["event"] in ("dead", "returned")]
    assert gone == sorted(gone), "all that leave do so before the first returns"
    check_bounds(it)


def test_the_rollback_of_a_transaction_with_artemis_goes_on_step_by_step() -> None:
    it = held_with_artemis(max_attempts=1)
    it.say("begin", xid="x")
    it.say("ack", queue="q", consumer="me", message=f"m{MANY - 1}", xid="x")
    it.costs.clear()
    it.say("rollback_xid", xid="x", reply="r")
    assert it.replies[-1]["ok"]
    assert kinds(it).count("dead") == MANY
    check_bounds(it)


# --- selectors -----------------------------------------------------------------------------------

SLOW = "a LIKE '%" + "_" * 32 + "b%'"
SEARCHED = (("a", b"a" * 20_000),)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As large as what 30 such selectors search in one message."""
    monkeypatch.setattr(limits, "STEP_BYTES", 1 << 20)
    monkeypatch.setattr(queries, "MOST_BYTES", 1 << 20)


def with_slow_selectors() -> Measured:
    it = measured()
    for number in range(30):
        own = f"{SLOW} OR b = {number}"
        it.say("attach", queue="q", consumer=f"k{number}", credit=9, selector=own)
    it.costs.clear()
    return it


@pytest.mark.usefixtures("small_steps")
def test_messages_that_many_selectors_search_are_no_batch() -> None:
    """To search a header for such a pattern takes as long as twice its size of messages."""
    it = with_slow_selectors()
    it.take([it.message("q", b"", SEARCHED) for _ in range(4)])
    assert len(it.costs) == 4


@pytest.mark.usefixtures("small_steps")
def test_a_dispatch_counts_what_the_selectors_search() -> None:
    it = with_slow_selectors()
    it.say("pause", queue="q", what="dispatch")
    it.take([it.message("q", b"", SEARCHED) for _ in range(4)])
    it.costs.clear()
    it.say("resume", queue="q", what="dispatch", reply="r")
    assert it.replies[-1]["ok"]
    assert len(it.costs) >= 4


@pytest.mark.usefixtures("small_steps")
def test_a_send_to_subscriptions_counts_what_their_selectors_search() -> None:
    it = Measured(Catalog({}, {"#": {}}, {"prices": {}}))
    for number in range(60):
        own = {"selector": f"{SLOW} OR b = {number}"}
        it.say("create_queue", queue=f"prices::{number}", settings=own)
    it.costs.clear()
    it.take([it.message("prices", b"", SEARCHED)])
    assert len(it.costs) >= 3


@pytest.mark.usefixtures("small_steps")
def test_a_page_of_messages_is_short_if_its_selector_searches_much() -> None:
    it = measured()
    it.take([it.message("q", b"", SEARCHED) for _ in range(40)])
    it.say("browse", queue="q", selector=SLOW, reply="r")
    assert it.replies[-1]["answer"]["next"] is not None


def test_a_selector_counts_what_it_calculates() -> None:
    """It counted its characters: 2,045 additions were 1 kB, and looking at 2,000 took 5 s."""
    it = measured()
    it.take([it.message("q", b"", (("a", b"1.25"),)) for _ in range(400)])
    it.costs.clear()
    selector = "+".join(["a"] * 2_045) + " = 1.5"
    it.say("attach", queue="q", consumer="me", credit=1, selector=selector, reply="r")
    assert it.replies[-1]["ok"]
    assert len(it.costs) >= 3


def test_messages_that_return_count_the_selectors_that_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """4,000 that returned beside 1,500 selectors, which had looked further, took 4.5 s."""
    monkeypatch.setattr(limits, "STEP_BYTES", 64 * 30 * limits.SCAN_COST_BYTES)
    monkeypatch.setattr(limits, "OPERATION_COST_BYTES", 0)
    monkeypatch.setattr(limits, "EVALUATION_COST_BYTES", 0)
    it = Measured(Catalog({"q": {}}, {"#": {"consumer_timeout": 0}}))
    attach(it)
    it.take([it.message("q", b"") for _ in range(1_005)])
    names = [f"k{number}" for number in range(30)]
    it.take(
        [
            it.command("attach", queue="q", consumer=k, credit=1, selector=f"a = '{k}'")
            for k in names
        ]
    )
    it.costs.clear()
    it.say("recover", queue="q", consumer="me", reply="r")
    assert it.replies[-1]["ok"]
    assert len(it.costs) > 10


# --- selectors that look at one message ----------------------------------------------------------


def test_the_consumers_of_a_queue_have_a_bounded_number_of_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them may look at one message in one step (R122)."""
    monkeypatch.setattr(limits, "LIKES", 3)
    it = measured()
    piece = "a_" * 20
    for name, selector in (
        ("one", "h LIKE '%a%' AND h LIKE 'b%'"), ("two", "h LIKE '%a%' OR h LIKE 'c%'"),
        ("three", f"h LIKE '%{piece}%'"), ("four", "h = 'a'"), ("five", "h NOT LIKE 'a'"),
    ):  # fmt: skip
        it.say("attach", queue="q", consumer=name, credit=1, selector=selector, reply="r")
    assert [reply.get("reason") for reply in it.replies] == [None, "limit", "limit", None, None]
    text = it.replies[1]["text"]
    assert "'%a%' OR" in text and "counts 2 patterns" in text and "at most 3" in text
    it.say("detach", queue="q", consumer="one")
    it.say("attach", queue="q", consumer="two", credit=1, selector="h LIKE 'a'", reply="r")
    assert it.replies[-1]["ok"]


def test_the_consumers_of_a_queue_calculate_a_bounded_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One message is looked at in one step (R122): 300 of them took 0.6 s, and 10,000 fit."""
    monkeypatch.setattr(limits, "OPERATIONS", 7)
    it = measured()
    for name, selector in (
        ("one", "kind = 1 OR kind = 2"), ("two", "kind"), ("three", ""),
    ):  # fmt: skip
        it.say("attach", queue="q", consumer=name, credit=1, selector=selector, reply="r")
    assert [reply.get("reason") for reply in it.replies] == [None, "limit", None]
    text = it.replies[1]["text"]
    assert "counts 1 names" in text and "consumers 7" in text and "at most 7" in text
    it.say("detach", queue="q", consumer="one")
    it.say("attach", queue="q", consumer="two", credit=1, selector="kind = 1", reply="r")
    assert it.replies[-1]["ok"]


def test_a_large_message_is_searched_by_many_selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of 800 kB took 0.1 s for each pattern with `_`: 10.8 s for 100 consumers."""
    it = measured()
    for number in range(100):
        selector = f"h LIKE '%{'a' * 30}_b{number}%'"
        it.say("attach", queue="q", consumer=f"k{number}", credit=1, selector=selector, reply="r")
    assert all(reply["ok"] for reply in it.replies)
    looked = []
    scan = like._shift_and

    def counting(chars: Any) -> Any:
        find = scan(chars)
        return lambda text, start: looked.append(len(text)) or find(text, start)

    monkeypatch.setattr(like, "_shift_and", counting)
    compile_selector.cache_clear()
    it.reopen()
    it.take([it.message("q", b"", (("h", b"a" * 800_000),))])
    it.take([it.message("q", b"", (("h", b"a" * 30_000),))])
    assert looked == [30_000] * 100
    compile_selector.cache_clear()
