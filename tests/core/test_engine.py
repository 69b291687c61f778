"""What the naive model cannot judge: limits, arithmetic of delays, broken accounts, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import AckMode, Refusal, Stage, Unfinished
from ringfaust.core.table import Kind
from ringfaust.errors import BrokenAccounts
from ringfaust.processor.memory import MemoryHost
from tests.model.harness import PAYLOAD, BytesStore, DictStore, Partition

LATEST = limits.TIME_MS


def partition(**fields: object) -> Partition:
    return Partition(DictStore(), {"q": {"consumer_timeout": 0} | fields, "other": {}})


def send(queue: str, message: str, now: int = 0, **more: Any) -> c.Send:
    return c.Send(queue, message, now, payload=PAYLOAD, **more)


def refusals(effects: list[e.Effect]) -> list[Refusal]:
    return [one.reason for one in effects if isinstance(one, e.Refused)]


def refused(it: Partition | MemoryHost, command: c.Command, now_ms: int = 0) -> list[Refusal]:
    return refusals(it.step(command, now_ms).all_effects)


# --- bad input changes nothing (R103) -----------------------------------------------------------

BAD = [
    (send("nowhere", "m"), Refusal.UNKNOWN_QUEUE),
    (c.Attach("nowhere", "k", 1), Refusal.UNKNOWN_QUEUE),
    (c.Attach("q", "k1", 1), Refusal.BAD_COMMAND),
    (c.Attach("q", "@window", 1), Refusal.BAD_COMMAND),
    (c.Attach("q", "k", -1), Refusal.BAD_COMMAND),
    (c.Attach("q", "k", limits.CREDIT + 1), Refusal.BAD_COMMAND),
    (c.Credit("q", "k1", -1), Refusal.BAD_COMMAND),
    (c.Credit("q", "k1", limits.CREDIT), Refusal.BAD_COMMAND),
    (c.Credit("q", "nobody", 1), Refusal.BAD_COMMAND),
    (c.Heartbeat("q", "nobody"), Refusal.BAD_COMMAND),
    (c.Detach("q", "nobody"), Refusal.BAD_COMMAND),
    (c.Recover("q", "nobody"), Refusal.BAD_COMMAND),
    (c.Rollback("nothing"), Refusal.BAD_COMMAND),
    (c.Rollback(""), Refusal.BAD_COMMAND),
    (c.Ack("q", "nobody", "held"), Refusal.BAD_COMMAND),
    (c.Ack("q", "k1", "nothing"), Refusal.UNKNOWN_DELIVERY),
    (c.Ack("q", "k1", "held", 99), Refusal.UNKNOWN_DELIVERY),
    (c.Ack("q", "k1", "done"), Refusal.STALE_DELIVERY),
    (c.Reject("q", "k1", "done"), Refusal.STALE_DELIVERY),
    (c.Release("q", "k1", "held", 0, -1), Refusal.BAD_COMMAND),
    (c.Release("q", "k1", "held", 0, LATEST + 1), Refusal.BAD_COMMAND),
    (c.CreateQueue("q", {}), Refusal.BAD_COMMAND),
    (c.CreateQueue("", {}), Refusal.BAD_COMMAND),
    (c.CreateQueue("x" * (limits.NAME_CHARS + 1), {}), Refusal.BAD_COMMAND),
    (c.AckMany("q", "nobody", ((1, "held"),)), Refusal.BAD_COMMAND),
    (c.AckMany("q", "k1", ((99, "held"),)), Refusal.UNKNOWN_DELIVERY),
    (c.CreateQueue("new", {"ring_size": 0}), Refusal.BAD_COMMAND),
    (c.Configure("q", {"ring_size": 0}), Refusal.BAD_COMMAND),
    (c.Configure("q", {"ring_size": 2, "rung": 1}), Refusal.BAD_COMMAND),
    (c.Configure("q", {"consumer_timeout": LATEST + 1}), Refusal.BAD_COMMAND),
    (c.Configure("nowhere", {}), Refusal.UNKNOWN_QUEUE),
    (c.DeleteQueue("nowhere"), Refusal.UNKNOWN_QUEUE),
    (c.Pause("q", "everything"), Refusal.BAD_COMMAND),
    (c.Resume("q", ""), Refusal.BAD_COMMAND),
    (c.Remove("q", "held"), Refusal.BAD_COMMAND),
    (c.Move("q", "waits", "nowhere"), Refusal.UNKNOWN_QUEUE),
    (c.Move("q", "nothing", "other"), Refusal.BAD_COMMAND),
    (c.CancelScheduled("q", "waits"), Refusal.BAD_COMMAND),
    (c.DeliverNow("q", "waits"), Refusal.BAD_COMMAND),
]  # fmt: skip


@pytest.mark.parametrize(("command", "reason"), BAD, ids=str)
@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_refused_command_changes_nothing(
    command: c.Command, reason: Refusal, in_one_batch: bool
) -> None:
    it = partition()
    it.step(c.Attach("q", "k1", 1), 10)
    it.step(send("q", "done"), 10)
    it.step(c.Ack("q", "k1", "done"), 10)
    it.step(send("q", "held"), 10)
    it.step(send("q", "waits"), 10)
    it.step(send("q", "later", due_ms=1_000), 10)
    if not in_one_batch:
        it.commit()
    before = it.would_be_durable().rows
    effects = it.step(command, 50).all_effects
    assert refusals(effects) == [reason]
    assert len(effects) == 1
    assert it.would_be_durable().rows == before
    if not in_one_batch:
        assert it.commit() == []


def test_a_refused_or_idle_step_takes_no_number_and_no_time() -> None:
    it = partition()
    it.step(send("q", "m"), 10)
    it.step(c.Rollback("nothing"), 500)
    it.step(c.Sweep(), 700)
    assert (it.state.step, it.state.now_ms) == (1, 10)


# --- limits -------------------------------------------------------------------------------------


def test_no_more_consumers_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSUMERS", 2)
    it = partition()
    answers = [refused(it, c.Attach("q", name, 1)) for name in ("a", "b", "c")]
    assert answers == [[], [], [Refusal.CONSUMER_LIMIT]]


def test_a_sweep_is_bounded_and_the_next_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_AT_ONCE", 4)
    it = partition()
    for number in range(10):
        it.step(send("q", f"m{number}", due_ms=100 + number), 0)
    done = []
    for _ in range(9):
        done += [
            one.message.id
            for one in it.step(c.Sweep(), 1_000).all_effects
            if isinstance(one, e.Due)
        ]
        assert len(done) < 10 or done == [f"m{number}" for number in range(10)]
    assert len(done) == 10
    assert it.state.next_wake_ms() is None


def test_more_expired_than_one_step_takes_are_neither_delivered_nor_evicted() -> None:
    """R50: before it can be delivered or count as a victim."""
    it = partition(ring_size=limits.SWEEP_AT_ONCE + 2)
    for number in range(limits.SWEEP_AT_ONCE + 2):
        it.step(send("q", f"m{number}", expires_at_ms=5), 0)
    effects = it.step(c.Attach("q", "k", 9), 10).all_effects
    assert {type(one) for one in effects} == {e.Attached, e.Expired}
    assert it.state.queues["q"].counts.ready == 0
    for number in range(limits.SWEEP_AT_ONCE + 2):
        it.step(send("other", f"n{number}", 10, expires_at_ms=15), 10)
    effects = it.step(c.Purge("other"), 20).all_effects
    assert {type(one) for one in effects} == {e.Expired}
    assert len(effects) == limits.SWEEP_AT_ONCE + 2


def test_a_scheduled_message_that_is_made_due_too_late_expires() -> None:
    """R50, R34."""
    it = partition()
    it.step(send("q", "m", due_ms=1_000, expires_at_ms=20), 0)
    effects = it.step(c.DeliverNow("q", "m"), 20).all_effects
    assert [type(one) for one in effects] == [e.Expired]
    it.commit()


@pytest.mark.parametrize("settle", [c.Ack, c.Reject])
def test_a_settle_delivers_no_expired_message(settle: type[c.Ack]) -> None:
    """R50: though no sweep came in between."""
    it = partition()
    it.step(c.Attach("q", "k", 1), 0)
    it.step(send("q", "held"), 0)
    it.step(send("q", "late", expires_at_ms=20), 0)
    effects = it.step(settle("q", "k", "held"), 20).all_effects
    assert [type(one) for one in effects if isinstance(one, e.Expired | e.Dispatched)] == [
        e.Expired
    ]


def test_deleting_a_queue_evicts_nothing_that_is_expired() -> None:
    """R3, R50."""
    it = partition()
    it.step(send("q", "m", expires_at_ms=20), 0)
    effects = it.step(c.DeleteQueue("q"), 20).all_effects
    assert [type(one) for one in effects] == [e.Expired, e.Deleted]


def test_a_send_that_is_taken_at_once_evicts_nothing() -> None:
    """R2: also where the ring is over its size, since it was lowered (R5)."""
    it = partition(ring_size=5)
    it.step(c.Attach("q", "k", 1), 0)
    for name in ("owned", "g1", "g2"):
        it.step(send("q", name, group="G"), 0)
    it.step(c.Attach("q", "other", 1), 0)
    it.step(c.Configure("q", {"ring_size": 1}), 0)
    effects = it.step(send("q", "taken"), 0).all_effects
    assert [type(one) for one in effects] == [e.Added, e.Dispatched]
    effects = it.step(send("q", "stays"), 0).all_effects
    assert [one.message.id for one in effects if isinstance(one, e.Evicted)] == ["g1"]


def test_a_message_with_many_holders_can_be_stored() -> None:
    """Their names stand in the message; the last ones are kept."""
    it = Partition(BytesStore(), {"q": {}})
    it.step(send("q", "m"), 0)
    for number in range(limits.HOLDERS + 40):
        name = f"{number:03}".rjust(limits.NAME_CHARS, "\U0001f501")
        it.step(c.Attach("q", name, 1), 0)
        it.step(c.Detach("q", name), 0)
        it.commit()
    it.start()
    it.step(c.Purge("q"), 0)
    assert refused(it, c.Ack("q", name, "m")) == [Refusal.EVICTED]


# --- redelivery delay (R40) ---------------------------------------------------------------------


def waits(message: str, releases: int, **fields: object) -> list[int]:
    """How long a message had to wait after each of its releases."""
    it = partition(max_attempts=-1, **fields)
    it.step(c.Attach("q", "k", 1), 0)
    it.step(send("q", message), 0)
    found = []
    now = 0
    for _ in range(releases):
        effects = it.step(c.Release("q", "k", message), now).all_effects
        due_ms = next(one.due_ms for one in effects if isinstance(one, e.Returned))
        found.append(due_ms - now if due_ms else 0)
        now = max(now, due_ms)
        it.step(c.Sweep(), now)
    it.commit()
    return found


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [0, 0]),
        ({"redelivery_delay": 1_000}, [1_000, 1_000]),
        ({"redelivery_delay": 1_000, "redelivery_multiplier": 2.0}, [1_000, 2_000, 4_000]),
        ({"redelivery_delay": 3, "redelivery_multiplier": 1.5}, [3, 4, 6, 10]),
        (
            {"redelivery_delay": 9, "redelivery_multiplier": 2, "redelivery_delay_max": 20},
            [9, 18, 20, 20],
        ),
        ({"redelivery_delay": 9, "redelivery_delay_max": 0}, [0, 0]),
    ],
)
def test_the_delay_grows_up_to_its_cap(fields: dict[str, object], expected: list[int]) -> None:
    assert waits("m", len(expected), **fields) == expected


def test_growth_that_overflows_is_capped() -> None:
    grown = waits("m", 200, redelivery_delay=LATEST, redelivery_multiplier=1_000.0)
    assert grown == [LATEST // 2] * 200
    capped = waits(
        "m", 200, redelivery_delay=1, redelivery_multiplier=1_000, redelivery_delay_max=50
    )
    assert capped == [1] + [50] * 199


def test_the_longest_delay_can_be_stored() -> None:
    it = Partition(
        BytesStore(), {"q": {"redelivery_delay": LATEST, "redelivery_delay_max": LATEST}}
    )
    it.step(c.Attach("q", "k", 1), LATEST)
    it.step(send("q", "m"), LATEST)
    it.step(c.Release("q", "k", "m"), LATEST)
    it.commit()
    assert it.state.next_wake_ms() == LATEST + 30_000
    assert it.state.queues["q"].counts.scheduled == 1


def test_jitter_is_derived_from_the_id_and_stays_within_its_share() -> None:
    fields = {"redelivery_delay": 1_000, "redelivery_jitter": 0.3}
    drawn = {f"m{n}": waits(f"m{n}", 1, **fields)[0] for n in range(300)}
    assert min(drawn.values()) >= 700
    assert max(drawn.values()) <= 1_300
    assert min(drawn.values()) < 750
    assert max(drawn.values()) > 1_250
    assert all(waits(name, 1, **fields) == [ms] for name, ms in list(drawn.items())[:20])


def test_jitter_does_not_pass_the_cap() -> None:
    fields = {"redelivery_delay": 1_000, "redelivery_jitter": 1.0, "redelivery_delay_max": 1_000}
    drawn = [waits(f"m{n}", 1, **fields)[0] for n in range(50)]
    assert max(drawn) == 1_000
    assert min(drawn) < 1_000


def test_the_delay_of_a_release_is_not_capped() -> None:
    it = partition(redelivery_delay_max=5)
    it.step(c.Attach("q", "k", 1), 0)
    it.step(send("q", "m"), 0)
    (returned,) = it.step(c.Release("q", "k", "m", 0, 77), 0).all_effects
    assert isinstance(returned, e.Returned)
    assert returned.due_ms == 77


# --- accounts (R100) ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["added", "acked", "ready", "delivering", "scheduled", "evicted"])
@pytest.mark.parametrize("by", [1, -1])
def test_tampered_counts_stop_the_queue(name: str, by: int) -> None:
    it = partition()
    it.step(send("q", "m"), 0)
    it.commit()
    counts = it.state.queues["q"].counts
    setattr(counts, name, getattr(counts, name) + by)
    it.step(send("q", "n"), 0)
    with pytest.raises(BrokenAccounts, match="'q'"):
        it.commit()


def test_balanced_counts_with_wrong_deliveries_stop_the_queue() -> None:
    it = partition()
    it.step(send("q", "m"), 0)
    counts = it.state.queues["q"].counts
    counts.delivering += 1
    counts.added += 1
    with pytest.raises(BrokenAccounts, match="delivering"):
        it.commit()


# --- the managed window (R12), as far as the core knows it --------------------------------------


def test_a_window_is_served_without_an_attached_consumer() -> None:
    it = partition(window=2)
    sent = [one for n in range(3) for one in it.step(send("q", f"m{n}"), 0).all_effects]
    assert [d.delivery.message.id for d in sent if isinstance(d, e.Dispatched)] == ["m0", "m1"]
    it.commit()
    it.start()
    acked = it.step(c.Ack("q", "@window", "m0"), 0).all_effects
    assert [d.delivery.message.id for d in acked if isinstance(d, e.Dispatched)] == ["m2"]
    closed = it.step(c.Configure("q", {"window": 0}), 0).all_effects
    assert [r.message.id for r in closed if isinstance(r, e.Returned)] == ["m2", "m1"]


# --- client acks (R16) --------------------------------------------------------------------------


def test_a_client_ack_covers_the_queues_of_its_session_only() -> None:
    it = partition()
    client = AckMode.CLIENT
    it.step(c.Attach("q", "k1", 9, 0, client, "s"), 0)
    it.step(c.Attach("other", "k1", 9, 0, client, "s"), 0)
    it.step(c.Attach("other", "k2", 9, 9, client, "t"), 0)
    for queue, message in (("q", "a"), ("other", "b"), ("q", "c")):
        it.step(send(queue, message), 0)
    it.step(c.Detach("other", "k2"), 0)  # b goes to k1, after c
    acked = it.step(c.Ack("q", "k1", "c"), 0).all_effects
    assert [one.delivery.message.id for one in acked if isinstance(one, e.Acked)] == ["a", "c"]
    it.step(send("q", "d"), 0)
    acked = it.step(c.Ack("q", "k1", "d"), 0).all_effects
    assert [one.delivery.message.id for one in acked if isinstance(one, e.Acked)] == ["b", "d"]


# --- the managed window (R12) and new configuration ----------------------------------------------


def test_a_window_opens_with_the_first_send_even_after_a_read() -> None:
    harness = partition(window=1)
    assert harness.state.queue("q") is not None  # as `list` does
    effects = harness.engine.step(send("q", "m"), 0).all_effects
    kinds = [type(one) for one in effects]
    assert kinds == [e.Attached, e.Added, e.Dispatched]


@pytest.mark.parametrize("command", [c.Detach("q", "@window"), c.Credit("q", "@window", 5)])
def test_a_window_is_changed_by_its_setting_alone(command: c.Command) -> None:
    harness = partition(window=1)
    harness.engine.step(send("q", "m"), 0)
    assert refusals(harness.engine.step(command, 0).all_effects) == [Refusal.BAD_COMMAND]
    queue = harness.state.queue("q")
    assert queue is not None
    assert queue.consumers["@window"].credit == 1


def test_a_window_opened_by_a_refused_command_stays_open_and_durable() -> None:
    harness = partition(window=1)
    effects = harness.engine.step(c.Ack("q", "k", "m"), 5).all_effects
    assert [type(one) for one in effects] == [e.Attached, e.Refused]
    harness.commit()
    harness.start()
    assert harness.state.step == 1
    assert [type(one) for one in harness.engine.step(send("q", "m"), 5).all_effects] == [
        e.Added,
        e.Dispatched,
    ]


def test_a_new_configuration_is_applied_at_the_next_use_of_the_queue() -> None:
    harness = partition(ring_size=5)
    for message in "abc":
        harness.engine.step(send("q", message), 0)
    harness.commit()
    harness.catalog = Catalog(
        {"q": {"consumer_timeout": 0, "ring_size": 1, "shrink": "eager"}, "other": {}}, {}
    )
    harness.start()
    effects = harness.engine.step(c.Heartbeat("q", "nobody"), 1).all_effects
    evicted = [one.message.id for one in effects if isinstance(one, e.Evicted)]
    assert evicted == ["a", "b"]
    assert isinstance(effects[0], e.Configured)
    assert effects[0].settings == {"ring_size": 1, "shrink": "eager"}
    assert refusals(effects) == [Refusal.BAD_COMMAND]
    harness.commit()
    harness.start()
    assert [type(one) for one in harness.engine.step(send("q", "d"), 2).all_effects] == [
        e.Added,
        e.Evicted,
    ]


def test_a_consumer_attaches_once_a_new_configuration_is_applied_in_full() -> None:
    """R114: as if it had never been cut."""
    seen = []
    for most in (1, limits.STEP_TRANSITIONS):
        it = Partition(DictStore(), {"q": {}}, step_transitions=most)
        for message in "abc":
            it.step(send("q", message), 0)
        it.commit()
        it.catalog = Catalog({"q": {"ring_size": 1, "shrink": "eager"}}, {})
        it.start()
        seen.append([type(one) for one in it.step(c.Attach("q", "k", 1), 1).all_effects])
    assert seen[0] == seen[1]
    assert seen[0] == [e.Configured, e.Evicted, e.Evicted, e.Attached, e.Dispatched]


SHRUNK = {
    "ring_size": 1, "shrink": "eager", "max_active_consumers": 2, "max_backup_consumers": 1,
}  # fmt: skip


def subscribe(consumer: str) -> c.Subscribe:
    return c.Subscribe("p", consumer, 1, subscription="s", shared=True)


@pytest.mark.parametrize(
    ("queue", "attach"),
    [("q", lambda consumer: c.Attach("q", consumer, 1)), ("p::s", subscribe)],
    ids=["attach", "subscribe"],
)
@pytest.mark.parametrize("most", [1, 2, limits.STEP_TRANSITIONS])
def test_a_place_is_looked_for_once_a_new_configuration_is_applied_in_full(
    queue: str, attach: Callable[[str], c.Command], most: int
) -> None:
    """R11, R114: two backups are left then, one more than there may be."""
    places = {"max_active_consumers": 1, "max_backup_consumers": 2}
    it = Partition(
        DictStore(), {"q": {}}, addresses={"p": {}}, settings={"#": places}, step_transitions=most
    )
    it.step(attach("x"), 0)
    it.step(c.Pause(queue, "dispatch"), 0)
    for consumer in "yz":
        it.step(attach(consumer), 0)
    for message in "abcd":
        it.step(send("q" if queue == "q" else "p", message), 0)
    it.commit()
    it.catalog = Catalog({"q": {}}, {"#": SHRUNK}, {"p": {}})
    it.start()
    step = it.step(attach("k"), 1)
    assert step.refusal is not None
    assert step.refusal.reason is Refusal.CONSUMER_LIMIT
    found = it.state.queue(queue)
    assert found is not None
    assert [*found.consumers] == ["x", "y", "z"]


def test_a_consumer_that_waited_for_another_transaction_is_checked_when_its_turn_comes() -> None:
    """R11, R114: such a stage may come from an earlier version, too, which left the check to us."""
    it = Partition(DictStore(), {"q": {}})
    it.step(c.Attach("q", "k", 1), 0)
    args = ("k", 1, 0, "individual", "", "", 0)
    it.state.unfinished = Unfinished((Stage("attach", "q", args),), "q", 0, True, (), ())
    assert refusals(it.engine.go_on().all_effects) == [Refusal.BAD_COMMAND]


def test_an_expired_message_names_its_last_holder() -> None:
    harness = partition()
    harness.engine.step(send("q", "m", expires_at_ms=10), 0)
    for name in ("k1", "k2", "k1"):
        harness.engine.step(c.Attach("q", name, 1), 0)
        harness.engine.step(c.Detach("q", name), 0)
    (effect,) = harness.engine.step(c.Sweep(), 10).all_effects
    assert isinstance(effect, e.Expired)
    assert effect.consumer == "k1"


# --- queues that never existed (R90, R103) --------------------------------------------------------

NEVER_USED = "departures.AA"
ABOUT_CONTENTS = [
    c.Purge(NEVER_USED), c.Resume(NEVER_USED, "dispatch"), c.DeleteQueue(NEVER_USED),
    c.Remove(NEVER_USED, "m"), c.Move(NEVER_USED, "m", "q"), c.CancelScheduled(NEVER_USED, "m"),
    c.DeliverNow(NEVER_USED, "m"),
]  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"window": 3}], ids=["plain", "window"])
@pytest.mark.parametrize("command", ABOUT_CONTENTS, ids=lambda command: type(command).__name__)
def test_an_operator_cannot_act_on_what_a_queue_has_that_never_existed(
    command: c.Command, settings: dict[str, object]
) -> None:
    it = Partition(DictStore(), {"departures.*": settings, "q": {}})
    assert refused(it, command, 1) == [Refusal.UNKNOWN_QUEUE]
    it.commit()
    assert (Kind.QUEUE, "", 0, NEVER_USED) not in it.store.rows, "it is not created either"


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize(
    "first",
    [
        send(NEVER_USED, "m"), c.Attach(NEVER_USED, "k", 1), c.Pause(NEVER_USED, "dispatch"),
        c.Configure(NEVER_USED, {"ring_size": 3}),
    ],
    ids=lambda command: type(command).__name__,
)  # fmt: skip
def test_a_queue_of_a_pattern_exists_from_its_first_use(first: c.Command, commits: bool) -> None:
    it = Partition(DictStore(), {"departures.*": {}})
    it.step(first, 1)
    if commits:
        it.commit()
    assert refused(it, c.Purge(NEVER_USED), 2) == []


def test_a_queue_that_is_declared_by_its_name_exists() -> None:
    assert refusals(partition().step(c.Purge("q"), 1).all_effects) == []


# --- the order within a step (R50, R103) ----------------------------------------------------------


def test_what_has_expired_leaves_before_an_ack_dispatches() -> None:
    it = partition()
    it.step(c.Attach("q", "k", 1), 0)
    for command in (send("q", "A"), send("q", "B")._replace(expires_at_ms=10), send("q", "C")):
        it.step(command, 0)
    expired, acked, dispatched = it.step(c.Ack("q", "k", "A"), 20).all_effects
    assert (type(expired), type(acked)) == (e.Expired, e.Acked)
    assert isinstance(dispatched, e.Dispatched)
    assert dispatched.delivery.message.id == "C"


@pytest.mark.parametrize("step_transitions", [1, limits.STEP_TRANSITIONS])
def test_a_search_in_vain_does_not_move_the_time(step_transitions: int) -> None:
    it = Partition(DictStore(), {"q": {}}, step_transitions=step_transitions)
    for message in "ABC":
        it.step(send("q", message, 5), 5)
    assert refused(it, c.Remove("q", "nothing"), 100) == [Refusal.BAD_COMMAND]
    assert it.state.now_ms == 5
