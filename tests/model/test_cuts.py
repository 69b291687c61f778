"""R114: commands that do not fit into one transaction, next to the same commands in one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import WINDOW, AckMode
from ringfaust.core.table import Kind
from ringfaust.protocol.stored_rows import read_value
from tests.model.harness import PAYLOAD, BytesStore, Partition
from tests.model.naive_selectors import PAYLOADS

CATALOG: dict[str, Any] = {
    "queues": {"a": {}, "b": {"ring_size": 8}},
    "addresses": {"p": {"retroactive_count": 9, "subscriptions": {"one": {}}}},
    "settings": {"#": {"consumer_timeout": 500}},
}
CONSUMERS = ("k1", "k2", "k3")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"ring_size": 3, "shrink": "eager"}, {"ring_size": -1, "shrink": "lazy"}, {"window": 4},
    {"window": 0}, {"max_messages": 5}, {"max_messages": -1}, {"redelivery_delay": 20},
    {"redelivery_delay": 0}, {"max_attempts": 2}, {"max_attempts": -1}, {"ring_size": 10},
)  # fmt: skip


RESTARTS = 0.4
"""Before so many steps."""


def history(
    rng: random.Random, consumers: Sequence[str] = CONSUMERS
) -> Iterator[tuple[c.Command, int]]:
    """Bursts of messages, and commands about many of them."""
    now = number = 0
    for _ in range(60):
        now += rng.choice([0, 0, 5, 30, 300])
        queue, name = rng.choice(["a", "a", "b", "p::one"]), rng.choice(consumers)
        xid = rng.choice(["", "", "", "x"])
        if rng.random() < 0.5:
            target = rng.choice(["a", "a", "b", "p"])
            for _ in range(rng.randint(1, 9)):
                number += 1
                due, ends = (now + 20 if rng.random() < share else 0 for share in (0.2, 0.1))
                group = rng.choice(["", "", "", "g"])
                payload = rng.choice(PAYLOADS)
                priority = rng.choice([4, 4, 7])
                yield (
                    c.Send(
                        target,
                        f"m{number}",
                        now,
                        priority,
                        due,
                        ends,
                        group,
                        9,
                        payload,
                        True,
                        xid,
                        owner="o" if xid else "",
                    ),
                    now,
                )
        message = f"m{max(1, number - rng.randint(0, 15))}"
        modes = (AckMode.INDIVIDUAL, AckMode.CLIENT, AckMode.CLIENT, AckMode.NONE)
        selector = rng.choice(["", "", "h = 'no'"])
        mode, session = rng.choice(modes), rng.choice(["", "s"])
        credit = rng.randint(1, 20)
        several = tuple((each, f"m{each}") for each in range(max(1, number - 9), number + 2))
        commands: list[c.Command] = [
            c.Attach(queue, name, credit, 0, mode, session, selector),
            c.Attach(queue, name, credit, 0, mode, session, ""),
            c.Subscribe("p", name, credit, ack_mode=mode, session=session),
            c.Ack(queue, name, message, 0, xid, "o"), c.Ack(queue, name, message),
            c.AckMany(queue, name, several),
            c.Release(queue, name, message), c.Detach(queue, name), c.Detach(f"p::{name}", name),
            c.Recover(queue, name), c.Rollback("s"), c.Begin("x", "o", 2_000), c.Prepare("x"),
            c.Commit("x"),
            c.RollbackXid("x"), c.Configure(queue, rng.choice(SETTINGS)), c.DeleteQueue(queue),
            c.Pause(queue, "dispatch"), c.Resume(queue, "dispatch"), c.Purge(queue),
            c.Remove(queue, message), c.Move(queue, message, rng.choice(["a", "b"])),
            c.CancelScheduled(queue, message), c.DeliverNow(queue, message), c.Sweep(), c.Sweep(),
            c.Credit(queue, name, 5),
        ]  # fmt: skip
        if WINDOW in consumers:
            commands += [c.Heartbeat(queue, name), c.Reject(queue, name, message)]
        yield rng.choice(commands), now


def of_each_queue(effects: list[e.Effect]) -> dict[str, list[e.Effect]]:
    """Order is promised within a queue only."""
    found: dict[str, list[e.Effect]] = {}
    for effect in effects:
        found.setdefault(effect.queue, []).append(effect)
    return found


def rows_of(partition: Partition) -> dict[bytes, Any]:
    """What is durable. A step that is refused after it was split may have another number."""
    rows: dict[bytes, Any] = dict(partition.store.durable.items_from(b""))  # type: ignore[union-attr]
    clock = bytes((Kind.CLOCK,))
    rows[clock] = read_value(Kind.CLOCK, rows[clock])._replace(step=0) if clock in rows else None
    return rows


def without_wakes(rows: dict[bytes, Any]) -> dict[bytes, Any]:
    """These rows without when a queue is swept next, which may be earlier than it has to be."""
    found = {key: value for key, value in rows.items() if key[0] != Kind.WAKE}
    for key in [key for key in found if key[0] == Kind.QUEUE]:
        found[key] = read_value(Kind.QUEUE, found[key])._replace(wake_ms=0)
    return found


def play(seed: int, cuts: Counter[str], level: int = 1, *, restarts: bool = False) -> None:
    """One history, cut and uncut: the same effects and, in the end, the same bytes.

    If it `restarts`, sometimes with other settings, which the next use of a queue takes up (R90).
    """
    rng = random.Random(seed)
    plain = Partition(BytesStore(), **CATALOG)
    cut = Partition(
        BytesStore(), **CATALOG, cache_bytes=rng.choice([0, 2_500, 1 << 30]),
        refill=rng.choice([1, 2, 1_000]), step_transitions=rng.randint(1, 4),
        crashes_in_steps=rng.random() < 0.5,
    )  # fmt: skip
    for partition in (plain, cut):
        partition.step(c.RaiseLevel(level), 0)
    consumers = (*CONSUMERS, WINDOW) if restarts else CONSUMERS
    for number, (command, now) in enumerate(history(rng, consumers)):
        if restarts and rng.random() < RESTARTS:
            queues = {name: rng.choice(SETTINGS) for name in CATALOG["queues"]}
            for partition in (plain, cut):
                partition.catalog = Catalog(queues, CATALOG["settings"], CATALOG["addresses"])
                partition.start()
        before = cut.cuts
        expected, done = plain.step(command, now), cut.step(command, now)
        cuts[type(command).__name__] += cut.cuts - before
        about = f"seed {seed}, step {number}: {command}"
        assert done.refusal == expected.refusal, about
        assert of_each_queue(done.effects) == of_each_queue(expected.effects), about
        plain.commit()
        cut.commit()
        rows = rows_of(cut), rows_of(plain)
        if restarts:  # in one transaction, a sweep does not plan again after what it has taken up
            rows = without_wakes(rows[0]), without_wakes(rows[1])
        assert rows[0] == rows[1], about


LARGE = {
    "Send", "Attach", "Subscribe", "Ack", "Detach", "Recover", "Rollback", "Commit", "RollbackXid",
    "Configure",
    "DeleteQueue", "Resume", "Purge", "Remove", "Move", "CancelScheduled", "DeliverNow", "Sweep",
    "Credit",
}  # fmt: skip


def test_a_command_in_several_transactions_does_the_same_as_in_one() -> None:
    """R114: at every cut point, with and without a crash there."""
    cuts: Counter[str] = Counter()
    for seed in range(150):
        play(seed, cuts)
    assert {name for name in LARGE if not cuts[name]} == set()


def test_what_the_first_use_of_a_queue_takes_up_comes_before_the_command() -> None:
    """R90, R114: whatever the command is, it waits for that, also over a crash."""
    cuts: Counter[str] = Counter()
    for seed in range(60):
        play(seed, cuts, restarts=True)
    assert {"Ack", "AckMany", "Credit", "Recover", "Release", "Rollback"} <= {*+cuts}


def test_what_artemis_returns_in_several_transactions_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C2, R114: also if a crash follows each cut."""
    like = {"consumer_timeout": 500, "compat": "artemis", "max_attempts": 3}
    monkeypatch.setitem(CATALOG, "settings", {"#": like})
    cuts: Counter[str] = Counter()
    for seed in range(40):
        play(seed, cuts, 1 + seed % 2)
    assert {"Detach", "Recover", "Rollback", "RollbackXid", "Sweep"} <= {*+cuts}


@pytest.mark.parametrize(("level", "is_cut"), [(1, False), (2, True)])
def test_what_version_0_2_0_cannot_continue_is_stored_from_level_2_on(
    level: int, is_cut: bool
) -> None:
    """R129: it knows how an Artemis set of a session returns, but not the rest of one."""
    it = Partition(BytesStore(), {"q": {"compat": "artemis"}}, step_transitions=1)
    it.step(c.RaiseLevel(level), 0)
    it.step(c.Attach("q", "k", 3, ack_mode=AckMode.CLIENT, session="s"), 0)
    for number in range(3):
        it.step(c.Send("q", f"m{number}", 0, payload=PAYLOAD), 0)
    step, stored = it.engine.begin(c.Rollback("s"), 0), set()
    effects = [*step.effects]
    while (unfinished := it.state.unfinished) is not None:
        stored |= {stage.kind for stage in unfinished.stages}
        effects += it.engine.go_on().effects
    assert [type(each) for each in effects].count(e.Returned) == 3
    assert ("requeue" in stored) == is_cut


@pytest.mark.parametrize(
    "command",
    [
        c.Remove("a", "nothing"), c.Move("a", "nothing", "b"), c.CancelScheduled("a", "nothing"),
        c.DeliverNow("a", "nothing"), c.Attach("a", "k", 1, selector="h = 'no'"),
    ],
    ids=lambda command: type(command).__name__,
)  # fmt: skip
def test_looking_for_a_message_keeps_no_more_rows_than_the_cache_has_room_for(
    command: c.Command,
) -> None:
    """R114: not the whole ring, nor the whole schedule."""
    cache_bytes = 40_000
    partition = Partition(BytesStore(), **CATALOG, cache_bytes=cache_bytes, refill=10)
    for number in range(600):
        due = 9_000 if number % 2 else 0
        partition.step(c.Send("a", f"m{number}", 0, 4, due, payload=PAYLOAD), 0)
    partition.commit()
    partition.start()
    partition.commit()
    partition.state.committed(cache_bytes)
    partition.step(command, 0)
    assert partition.state.write_set.cached_bytes <= cache_bytes
