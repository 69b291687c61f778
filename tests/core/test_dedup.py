"""The dedup window: a message that is sent again does not come in again (R119)."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.engine import Engine, Step
from ringfaust.core.model import Refusal
from ringfaust.core.sent_ids import PAGE
from ringfaust.core.state import State
from ringfaust.core.table import Kind
from ringfaust.protocol.records import Payload
from tests.model.harness import DictStore, rows_of

WINDOW_MS = 1_000


class World:
    """Queue `q` with a dedup window, queue `plain` without, and an address `p`."""

    def __init__(self, step_transitions: int = limits.STEP_TRANSITIONS, **settings: object) -> None:
        self.store = DictStore()
        self.step_transitions = step_transitions
        queues = {"q": {"dedup_window": WINDOW_MS, **settings}, "plain": {}}
        self.catalog = Catalog(queues, {"#": {"consumer_timeout": 0}}, {"p": {}})
        self.sent = 0
        self.reopen()

    def reopen(self) -> None:
        self.state = State(self.store, self.catalog)
        self.engine = Engine(self.state, self.step_transitions)

    def step(self, command: c.Command, now_ms: int) -> Step:
        step = self.engine.begin(command, now_ms)
        self.commit()
        while self.engine.is_unfinished:
            self.reopen()
            step = step.followed_by(self.engine.go_on())
            self.commit()
        return step

    def commit(self) -> None:
        self.store.apply(rows_of(self.state.writes()))
        self.state.committed(0)

    def send(self, message_id: str = "", now_ms: int = 0, queue: str = "q", **fields: Any) -> Step:
        """Send a message; without an id its producer gave it none."""
        self.sent += 1
        source = f"in/0/{self.sent}"
        payload = Payload(None, b"x", (), source)
        sent_ms = fields.pop("sent_ms", now_ms)
        send = c.Send(queue, message_id or source, sent_ms, payload=payload, **fields)
        return self.step(send, now_ms)

    def is_added(self, message_id: str, now_ms: int = 0, queue: str = "q", **fields: Any) -> bool:
        step = self.send(message_id, now_ms, queue, **fields)
        if step.refusal is None:
            assert any(isinstance(each, e.Added | e.Scheduled) for each in step.effects)
            return True
        assert (step.effects, step.refusal.reason) == ([], Refusal.DUPLICATE)
        return False

    def rows(self, queue: str = "q") -> tuple[int, int]:
        """How many ids and how many pages are stored."""
        scan = self.store.scan
        ids = scan(Kind.SENT_ID, queue, 0, None, 10**6)
        return len(ids), len(scan(Kind.SENT_PAGE, queue, 0, None, 10**6))


@pytest.fixture
def world() -> World:
    return World()


def test_a_repeat_is_refused_and_says_what_it_repeats(world: World) -> None:
    world.send("other")
    assert world.is_added("m", 100)
    refusal = world.send("m", 350).refusal
    assert refusal is not None
    assert (refusal.queue, refusal.reason, refusal.about) == ("q", Refusal.DUPLICATE, "m")
    assert "250 ms before, with sequence 2; dedup_window is 1000 ms" in refusal.text


def test_a_repeat_changes_nothing(world: World) -> None:
    world.send("m")
    before, step = dict(world.store.rows), world.state.step
    assert not world.is_added("m", 500)
    assert world.store.rows == before
    assert (world.state.step, world.state.now_ms) == (step, 0)


def test_the_window_ends_so_long_after_the_send_and_then_begins_again(world: World) -> None:
    assert world.is_added("m", 0)
    assert not world.is_added("m", WINDOW_MS - 1)
    assert world.is_added("m", WINDOW_MS)
    assert not world.is_added("m", 2 * WINDOW_MS - 1)


def test_a_refused_repeat_does_not_extend_the_window(world: World) -> None:
    assert world.is_added("m", 0)
    assert not world.is_added("m", 900)
    assert world.is_added("m", WINDOW_MS)


def test_the_times_of_the_sends_count_and_not_when_they_are_read(world: World) -> None:
    assert world.is_added("m", now_ms=0, sent_ms=0)
    assert not world.is_added("m", now_ms=3_600_000, sent_ms=900)  # a worker was down for an hour


def test_no_tick_makes_it_forget(world: World) -> None:
    world.send("m", 0)
    world.step(c.Sweep(), 3_600_000)
    assert not world.is_added("m", 3_600_000, sent_ms=10)


def test_a_message_whose_producer_gave_it_no_id_is_neither_tested_nor_remembered(
    world: World,
) -> None:
    world.send()
    world.sent -= 1  # the same position again: the topic was recreated (R111)
    assert world.send().refusal is None
    assert world.rows() == (0, 0)


def test_a_queue_without_the_setting_remembers_nothing(world: World) -> None:
    assert world.is_added("m", queue="plain")
    assert world.is_added("m", queue="plain")
    assert world.rows("plain") == (0, 0)


def test_the_window_survives_a_restart(world: World) -> None:
    world.send("m", 0)
    world.reopen()
    assert not world.is_added("m", 10)


@pytest.mark.parametrize("leaves", ["acked", "evicted", "purged", "removed", "expired", "dead"])
def test_a_message_that_has_left_is_remembered(leaves: str) -> None:
    world = World(ring_size=1)
    if leaves in ("acked", "dead"):
        world.step(c.Attach("q", "me", 1), 0)
    world.send("m", 0, expires_at_ms=5 if leaves == "expired" else 0)
    commands: dict[str, c.Command] = {
        "acked": c.Ack("q", "me", "m"),
        "dead": c.Reject("q", "me", "m"),
        "purged": c.Purge("q"),
        "removed": c.Remove("q", "m"),
    }
    world.step(commands.get(leaves, c.Sweep()), 5)
    if leaves == "evicted":
        world.send("other", 5)
    assert world.state.queue("q").counts.gone == 1  # type: ignore[union-attr]
    assert not world.is_added("m", 10)


def test_a_scheduled_message_counts_from_its_send(world: World) -> None:
    assert world.is_added("m", 0, due_ms=5_000)
    assert not world.is_added("m", 10)
    assert world.is_added("m", WINDOW_MS)


@pytest.mark.parametrize("limit", [{"max_message_bytes": 1}, {"max_messages": 0}])
def test_a_send_that_was_refused_may_be_tried_again(limit: dict[str, int]) -> None:
    world = World(when_full="reject_newest", **limit)
    assert world.send("m", 0, size_bytes=2).refusal is None  # its dead record says so
    fits = dict.fromkeys(limit, -1)
    world.step(c.Configure("q", fits), 1)
    assert world.is_added("m", 2, size_bytes=2)


def test_a_repeat_is_refused_before_the_limits_are_tested(world: World) -> None:
    world.step(c.Configure("q", {"max_messages": 1, "when_full": "reject_newest"}), 0)
    world.send("m", 0)
    assert not world.is_added("m", 1)
    assert world.state.queue("q").counts.refused == 0  # type: ignore[union-attr]


def test_a_redriven_message_is_no_repeat_but_can_be_repeated(world: World) -> None:
    assert world.is_added("m", 0)
    assert world.is_added("m", 10, redrives=1, redrive_of="q/1")
    assert not world.is_added("m", WINDOW_MS + 9)


@pytest.mark.parametrize("redrive_of", ["", "q/2", "plain/1", "q/01", "1"])
def test_a_redrive_must_prove_itself(world: World, redrive_of: str) -> None:
    """By the sequence of the last message of that id: what a producer says is no proof."""
    assert world.is_added("m", 0)
    assert not world.is_added("m", 10, redrives=1, redrive_of=redrive_of)


def test_a_proof_serves_once(world: World) -> None:
    assert world.is_added("m", 0)
    assert world.is_added("m", 10, redrives=1, redrive_of="q/1")
    assert not world.is_added("m", 11, redrives=1, redrive_of="q/1")
    assert world.is_added("m", 12, redrives=2, redrive_of="q/2")


def test_a_move_is_no_repeat_but_its_message_can_be_repeated(world: World) -> None:
    world.send("m", 0, "plain")
    world.send("m", 0)
    moved = world.step(c.Move("plain", "m", "q"), 10)
    assert [type(each) for each in moved.effects] == [e.MovedOut, e.Added]
    assert not world.is_added("m", WINDOW_MS + 9)


def test_each_queue_of_an_address_has_a_window_of_its_own(world: World) -> None:
    world.step(c.CreateQueue("p::a", {"dedup_window": WINDOW_MS}), 0)
    world.step(c.CreateQueue("p::b", {}), 0)
    world.send("m", 0, "p")
    effects = world.send("m", 10, "p").effects
    assert [(type(each), each.queue) for each in effects] == [
        (e.Refused, "p::a"),
        (e.Added, "p::b"),
    ]


def test_a_copy_of_a_retained_message_can_be_repeated(world: World) -> None:
    world.step(c.ConfigureAddress("p", {"retroactive_count": 5}), 0)
    world.send("m", 0, "p")
    world.step(c.CreateQueue("p::late", {"dedup_window": WINDOW_MS}), 10)
    effects = world.send("m", 20, "p").effects
    assert [type(each) for each in effects] == [e.Refused]


def test_a_distributed_transaction_is_tested_when_it_is_committed(world: World) -> None:
    world.step(c.Begin("x", "o"), 0)
    for _ in range(2):
        assert world.send("m", 0, xid="x", owner="o").refusal is None
    assert world.is_added("first", 0)
    assert world.send("first", 0, xid="x", owner="o").refusal is None
    world.step(c.Prepare("x"), 0)
    effects = world.step(c.Commit("x"), 0).effects
    refused = [(each.about, each.reason) for each in effects if isinstance(each, e.Refused)]
    assert refused == [("m", "duplicate"), ("first", "duplicate")]
    assert not world.is_added("m", 10)


def test_what_a_transaction_rolled_back_may_be_sent_again(world: World) -> None:
    world.step(c.Begin("x", "o"), 0)
    world.send("m", 0, xid="x", owner="o")
    world.step(c.RollbackXid("x"), 0)
    assert world.is_added("m", 10)


def test_another_window_applies_to_the_next_send(world: World) -> None:
    world.send("m", 0)
    world.step(c.Configure("q", {"dedup_window": 100}), 10)
    assert world.is_added("m", 100)


@pytest.mark.parametrize("step_transitions", [1, limits.STEP_TRANSITIONS])
@pytest.mark.parametrize(
    "forget", [c.Configure("q", {"dedup_window": 0}), c.DeleteQueue("q")], ids=["off", "deleted"]
)
def test_a_window_that_is_switched_off_or_deleted_forgets_all(
    step_transitions: int, forget: c.Command
) -> None:
    world = World(step_transitions)
    for number in range(2 * PAGE + 1):
        world.send(f"m{number}")
    world.step(forget, 0)
    assert world.rows() == (0, 0)
    world.step(c.Configure("q", {"dedup_window": WINDOW_MS}), 0)
    assert world.is_added("m0")


def test_it_remembers_no_more_ids_than_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SENT_IDS", 2 * PAGE)
    for number in range(5 * PAGE):
        world.send(f"m{number}")
        assert world.rows()[0] <= 3 * PAGE
    for number in range(3 * PAGE, 5 * PAGE):
        assert not world.is_added(f"m{number}"), "the last ones are all remembered"
    assert world.is_added("m0")


def test_it_forgets_what_is_outside_the_window(world: World) -> None:
    for number in range(3 * PAGE):
        world.send(f"old{number}", 0)
    for number in range(PAGE):
        world.send(f"new{number}", WINDOW_MS)
    assert world.rows() == (2 * PAGE, 2)  # two pages at once, so that it catches up
    for number in range(PAGE):
        world.send(f"newer{number}", WINDOW_MS)
    assert world.rows() == (2 * PAGE, 2)
    assert not world.is_added("new0", WINDOW_MS)


def test_an_id_that_came_again_is_not_forgotten_with_its_first_page(world: World) -> None:
    for number in range(PAGE):
        world.send(f"old{number}", 0)
    assert world.is_added("old7", WINDOW_MS)
    for number in range(PAGE - 1):
        world.send(f"new{number}", WINDOW_MS)
    assert world.rows() == (PAGE, 1)
    assert not world.is_added("old7", WINDOW_MS + 1)


@pytest.mark.parametrize("step_transitions", [1, limits.STEP_TRANSITIONS])
def test_a_redrive_proves_itself_through_an_address_too(step_transitions: int) -> None:
    """Also to a queue that gets it in a later transaction (R121)."""
    world = World(step_transitions)
    for name in "abc":
        world.step(c.CreateQueue(f"p::{name}", {"dedup_window": WINDOW_MS}), 0)
    world.send("m", 0, "p")
    effects = world.send("m", 10, "p", redrives=1, redrive_of="p::c/1").effects
    assert [one.queue for one in effects if isinstance(one, e.Added)] == ["p::c"]
