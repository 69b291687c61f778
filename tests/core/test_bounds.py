"""R120: what a row of the changelog may grow to, whatever clients do."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.engine import Step
from ringfaust.core.model import AckMode, Consumer, Refusal
from ringfaust.core.table import Kind
from ringfaust.protocol.stored_rows import write_value
from tests.model.harness import PAYLOAD, BytesStore, Partition


def partition(**fields: Any) -> Partition:
    return Partition(BytesStore(), {"q": {"consumer_timeout": 0} | fields})


def send(it: Partition, message: str) -> Step:
    return it.step(c.Send("q", message, 0, payload=PAYLOAD), 0)


def row_bytes(it: Partition, kind: Kind) -> int:
    """The longest row of that kind in the next commit."""
    rows = [write_value(kind, value) for row, value in it.commit() if row[0] == kind and value]
    return max(map(len, rows), default=0)


def unfinished_bytes(it: Partition, command: c.Command) -> int:
    """The longest row of what is left of a command, over all its transactions."""
    it.commit()
    it.engine.begin(command, 0)
    longest = 0
    while it.engine.is_unfinished:
        longest = max(longest, row_bytes(it, Kind.UNFINISHED))
        it.engine.go_on()
    it.commit()
    return longest


def come_and_go(it: Partition, priorities: range) -> None:
    """Consumers with priorities of their own, each of which gets a message and leaves."""
    for priority in priorities:
        it.step(c.Attach("q", f"k{priority}", 1, priority), 0)
        it.step(c.Detach("q", f"k{priority}"), 0)


def test_consumers_that_have_left_leave_no_cursor_in_the_queues_row() -> None:
    it = partition(ring_size=10)
    send(it, "A")
    before = row_bytes(it, Kind.QUEUE)
    come_and_go(it, range(500))
    send(it, "B")
    assert row_bytes(it, Kind.QUEUE) < before + 100


def test_a_row_with_cursors_of_consumers_that_have_left_heals() -> None:
    it = partition()
    it.step(c.Attach("q", "k", 9, priority=7), 0)
    send(it, "A")
    it.commit()
    row = it.state.queue_rows.get("q")
    assert row is not None and row.cursors == ((7, 1, 1),)
    stale = tuple((priority, 1, 1) for priority in range(5_000))
    it.store.apply([((Kind.QUEUE, "q", 0, "q"), row._replace(cursors=stale))])
    it.start()
    send(it, "B")
    it.commit()
    row = it.state.queue_rows.get("q")
    assert row is not None and row.cursors == ((7, 1, 1),), "stored with the next message"


def test_consumers_of_too_many_priorities_are_refused() -> None:
    it = partition()
    for priority in range(limits.CONSUMER_PRIORITIES):
        it.step(c.Attach("q", f"k{priority}", 1, priority), 0)
        send(it, f"m{priority}")
    largest = row_bytes(it, Kind.QUEUE)
    refused = it.step(c.Attach("q", "one more", 1, -1), 0).refusal
    assert refused is not None
    assert (refused.reason, refused.about) == (Refusal.LIMIT, "one more")
    assert str(limits.CONSUMER_PRIORITIES) in refused.text
    assert row_bytes(it, Kind.QUEUE) == 0, "a refusal changes nothing"
    assert it.step(c.Attach("q", "of a known priority", 1, 5), 0).refusal is None
    assert largest < 4_000
    it.step(c.Detach("q", "k9"), 0)
    (attached,) = it.step(c.Attach("q", "one more", 1, -1), 0).effects
    assert isinstance(attached, e.Attached), "there is room again"


# --- many deliveries ------------------------------------------------------------------------------


class Number(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Number.compared += 1
        return int.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = int.__hash__


def test_each_of_many_deliveries_of_one_id_ends_without_a_search() -> None:
    """100,000 of one id that returned, newest first, took minutes."""
    it = partition()
    it.step(c.Attach("q", "k", 500), 0)
    for _ in range(500):
        send(it, "one")
    deliveries = [each for _, each in it.state.queues["q"].deliveries]
    consumer = Consumer("k", 1, 500, 0, AckMode.INDIVIDUAL, "", True, 0)
    held = [each._replace(number=Number(each.number)) for each in deliveries]
    for each in held:
        consumer.hold(each)
    Number.compared = 0
    for each in reversed(held):
        consumer.let_go(each)
    assert Number.compared < 5 * len(held)
    assert not consumer.held and not consumer.in_flight


# --- what is left of a command --------------------------------------------------------------------

LONG = "\U0001f40c" * 240
"""Twelve bytes a character in JSON."""


def session_of(it: Partition, queues: int, each: int) -> None:
    """A session with consumers in several queues; each consumer holds a message."""
    for queue in range(queues):
        name = f"{queue}{LONG}"
        it.step(c.CreateQueue(name, {}), 0)
        for number in range(each):
            mode = AckMode.CLIENT
            it.step(c.Attach(name, f"{number}{LONG}", 1, 0, mode, "s"), 0)
            it.step(c.Send(name, f"{queue}-{number}", 0, payload=PAYLOAD), 0)


def small_steps() -> Partition:
    return Partition(BytesStore(), {}, step_transitions=2)


def test_the_rest_of_a_sessions_rollback_names_neither_its_consumers_nor_its_queues() -> None:
    it = small_steps()
    session_of(it, queues=10, each=10)
    assert 0 < unfinished_bytes(it, c.Rollback("s")) < 10_000


@pytest.mark.parametrize("step_transitions", [1, limits.STEP_TRANSITIONS])
def test_a_sessions_rollback_expires_as_much_however_it_is_cut(
    step_transitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_AT_ONCE", 2)
    it = Partition(BytesStore(), {"q": {}}, step_transitions=step_transitions)
    it.step(c.Attach("q", "k", 5, session="s"), 0)
    for number in range(5):
        send(it, f"held {number}")
    for number in range(9):
        late = c.Send("q", f"late {number}", 0, expires_at_ms=10, payload=PAYLOAD)
        it.step(late, 0)
    effects = it.step(c.Rollback("s"), 10).effects
    before = [each for each in effects if isinstance(each, e.Expired | e.Returned)]
    assert [type(each) for each in before[:3]] == [e.Expired, e.Expired, e.Returned]


def test_the_rest_of_a_sessions_ack_does_not_name_its_queues() -> None:
    it = small_steps()
    session_of(it, queues=30, each=1)
    ack = c.Ack(f"29{LONG}", f"0{LONG}", "29-0")
    assert 0 < unfinished_bytes(it, ack) < 10_000
    assert sum(queue.counts.acked for queue in it.state.queues.values()) == 30


def test_the_rest_of_an_undo_names_neither_transactions_nor_queues() -> None:
    it = small_steps()
    session_of(it, queues=10, each=2)
    for queue in range(10):
        it.step(c.Begin(f"{queue}{LONG}"), 0)
        for number in range(2):
            ack = c.Ack(
                f"{queue}{LONG}", f"{number}{LONG}", f"{queue}-{number}", 0, f"{queue}{LONG}"
            )
            it.step(ack, 0)
    assert 0 < unfinished_bytes(it, c.Start()) < 10_000
    assert not list(it.state.xids)
    it.step(c.Begin("x"), 0)
    for queue in range(10):
        it.step(c.Ack(f"{queue}{LONG}", f"0{LONG}", f"{queue}-0", 0, "x"), 0)
    assert 0 < unfinished_bytes(it, c.RollbackXid("x")) < 10_000
    assert not list(it.state.xids)
