"""Partitions that stop at a record or without one, and what operators order (R123)."""

from __future__ import annotations

import pytest

from tests.sim.order_book import UNKNOWN, OrderBook
from tests.sim.plan import Plan
from tests.sim.queue_book import Wrong
from tests.sim.run import play
from tests.sim.script import Step
from tests.sim.test_sim import PLAN, SENDS, WORK, lines_of
from tests.sim.world import World

POISON: Step = ("poison", ("send", "keyed", "a", {"id": "bad"}))
STOP = [SENDS[0], POISON, *SENDS[1:], WORK, WORK, WORK]
"""It proceeds with care after the first failure, and stops at the second."""


def order(what: str, *, mends: bool = False, pauses: int = 0) -> Step:
    return ("order", 0, what, mends, pauses)


def answers(world: World) -> list[str]:
    return [why for _, why in OrderBook(world.broker).answers(0)]


def added(world: World) -> list[str]:
    return [line.partition('"id":"')[2][:2] for line in lines_of(world, "added")]


@pytest.mark.parametrize("pauses", range(9))
def test_a_skipped_record_moves_to_the_dead_topic_once(pauses: int) -> None:
    """Whatever becomes of the commit that moves it."""
    world = play(PLAN, [*STOP, order("skip", pauses=pauses), WORK, WORK, WORK])
    assert len(lines_of(world, "unreadable")) == 1
    assert added(world) == ["m0", "m1", "m2", "m3"]
    assert answers(world) == [""]


def test_a_skip_is_answered_as_done_though_the_partition_stops_again_at_once() -> None:
    """Seed 981. The commit that skipped seemed to fail; the next one was forbidden."""
    resume = {"type": "resume", "queue": "a", "what": "pulling", "reply": "r"}
    both, timed = [("control", 9), ("keyed", 9)], [("timed", 9)]
    stops = [("forbid", 0, "commit"), ("say", 0, resume, 1), ("work", 0, both, 1), WORK]
    sent = [("send", "timed", "a", {"id": "m0"}), ("work", 0, timed, 1), WORK]
    orders = [order("skip", mends=True, pauses=1), order("retry", pauses=3), ("work", 0, both, 3)]
    world = play(
        PLAN, [WORK, ("assign", 0, 0, "clean"), *stops, *sent, *orders, ("forbid", 0, "commit")]
    )
    assert answers(world)[0] == ""
    assert len(lines_of(world, "unreadable")) == 1


def test_a_skip_is_not_said_to_be_refused_while_its_outcome_is_not_known() -> None:
    """Seed 5599. Its commit seemed to fail, and the partition could not be opened after that."""
    said = []
    for pauses in range(1, 9):
        skip = [order("skip", pauses=pauses), WORK, ("forbid", 0, "open")]
        said.append(answers(play(PLAN, [*STOP, *skip]))[0])
    assert any(UNKNOWN in each for each in said), said


def test_a_skip_of_another_record_changes_nothing() -> None:
    retry = order("retry", mends=True)
    world = play(PLAN, [*STOP, order("skip another"), WORK, WORK, retry, WORK, WORK])
    assert answers(world) == ["it has stopped at keyed/0/1, not at keyed/0/11", ""]
    assert added(world) == ["m0", "ba", "m1", "m2", "m3"]


def test_a_retry_stops_again_until_the_cause_is_mended() -> None:
    world = play(PLAN, [*STOP, order("retry"), WORK, WORK, WORK, order("retry", mends=True), WORK])
    assert [answer[:30] for answer in answers(world)] == ["it has stopped at keyed/0/1: U", ""]
    assert added(world) == ["m0", "ba", "m1", "m2", "m3"]


@pytest.mark.parametrize("what", ["open", "commit"])
def test_a_partition_that_lacks_a_permission_goes_on_once_it_has_it(what: str) -> None:
    forbid = ("forbid", 0, what)
    lacking = [("assign", 0, 1, "clean"), *SENDS, *[WORK] * 4, order("skip another"), WORK]
    world = play(PLAN, [WORK, forbid, *lacking, order("retry", mends=True), WORK])
    assert [answer[:14] for answer in answers(world)] == ["it has stopped", ""]
    assert added(world) == ["m0", "m1", "m2", "m3"]


def test_a_worker_that_is_too_old_by_then_does_not_carry_out_a_retry() -> None:
    """Seed 1537, R129. It had stopped before it saw the state, which another one serves then."""
    stops = [("forbid", 0, "open"), ("change_version", True, "keep"), ("assign", 0, 0, "handover")]
    retry = order("retry", mends=True)
    world = play(PLAN, [*SENDS, WORK, ("raise_level",), WORK, WORK, *stops, retry, WORK, WORK])
    assert added(world) == ["m0", "m1", "m2", "m3"]


def test_a_retry_is_answered_though_its_record_waits_for_a_queue() -> None:
    """The queue was paused meanwhile, and nothing holds up the partition any more."""
    pause = {"type": "pause", "queue": "a", "what": "pulling"}
    control = ("work", 0, [("control", 9)], 3)
    world = play(
        PLAN,
        [*STOP, ("say", 0, pause, 1), order("retry", mends=True), control, control, WORK, WORK],
    )
    assert answers(world) == [""]
    assert added(world) == ["m0"]


def test_a_retry_is_answered_though_another_topic_ends_with_a_marker() -> None:
    """R123. The partition had read past it before, and stayed careful until a record came."""
    sent = [("transaction", [("timed", "a", {"id": "m0"})], True), ("work", 0, [("timed", 1)], 3)]
    both = ("work", 0, [("timed", 9), ("keyed", 9)], 3)
    pause = {"type": "pause", "queue": "a", "what": "pulling"}
    retry = [("say", 0, pause, 1), order("retry", mends=True)]
    control, timed = (("work", 0, [(topic, 9)], 3) for topic in ("control", "timed"))
    world = play(PLAN, [*sent, POISON, both, WORK, WORK, *retry, control, control, timed, timed])
    assert answers(world) == [""]
    assert added(world) == ["m0"]


def test_the_bookkeeper_finds_a_record_that_nobody_asked_to_skip() -> None:
    world = World(Plan({"a": {}}, {}))
    line = b'{"event":"unreadable","reason":"skipped","text":"skipped by ann: x","by":"keyed/0/0"}'
    world.broker.write(("events", 0), [(None, line, [])])
    said = [("ringfaust-source", b"keyed/0/0"), ("ringfaust-reason", b"skipped")]
    world.broker.write(("keyed", 0), [(b"a", b"1", [])])
    world.broker.write(("dead", 0), [(b"a", b"1", said)])
    with pytest.raises(Wrong, match="nobody asked to skip"):
        OrderBook(world.broker).check()
    world.close()
