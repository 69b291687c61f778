"""That the comparison sees what differs; and, marked slow, the comparison itself."""

from __future__ import annotations

import pytest

from ringfaust.core import command as c
from tests.oracle import game
from tests.oracle.artemis import Artemis
from tests.oracle.clock import Clock, Late
from tests.oracle.engine import QUEUE, Engine, Seen
from tests.oracle.game import PAYLOAD, Difference, play
from tests.oracle.operations import CONSUMERS, History, Operation, Settings, history
from tests.oracle.shrink import shrink

KINDS = """
    ack advance attach burst close commit credit deliver_now pause recover reject release resize
    resume rollback send
""".split()
WITHOUT_TIME = Settings(ring_size=2, max_attempts=10, redelivery_delay=0)


class Twin:
    """Stands for Artemis: the engine itself, with a fault if so asked."""

    version = "none"

    def __init__(self, forgets: str = "") -> None:
        self.forgets = forgets
        """A message whose eviction it does not tell."""

    def ask(self, kind: str, *words: object) -> dict[str, object]:
        now_ms = game.now_ms()
        if kind == "queue":
            self.engine = Engine(WITHOUT_TIME, 100)
        commands: dict[str, c.Command] = {}
        if kind == "send":
            name, priority, *_ = words
            commands[kind] = c.Send(QUEUE, str(name), now_ms, int(str(priority)), payload=PAYLOAD)
        elif kind == "attach":
            name, session, credit, priority = words
            numbers = int(str(credit)), int(str(priority))
            commands[kind] = c.Attach(QUEUE, str(name), *numbers, session=str(session))
        elif kind == "ack":
            commands[kind] = c.Ack(QUEUE, *map(str, words))
        elif kind == "close":
            commands[kind] = c.Detach(QUEUE, str(words[0]))
        return self.answer(self.engine.play(list(commands.values()), now_ms), now_ms)

    def answer(self, seen: Seen, now_ms: int) -> dict[str, object]:
        evicted = [each for each in seen.evicted if each != self.forgets]
        facts = [["evicted", each] for each in evicted]
        return {
            "began": now_ms,
            "ended": now_ms,
            "facts": facts + [["delivered", *each] for each in seen.delivered],
            "ready": seen.ready,
            "delivering": seen.delivering,
            "scheduled": [],
            "counts": seen.counts,
        }


def of(*kinds: str) -> History:
    """A history of sends, and of others for the consumer c1."""
    operations = [
        Operation(kind, f"m{number}" if kind == "send" else "c1", number=1, priority=4)
        for number, kind in enumerate(kinds)
    ]
    return History(WITHOUT_TIME, tuple(operations))


LONG = of("send", "attach", "send", "ack", "send", "send", "close", "send", "send", "attach")


def test_sides_that_agree() -> None:
    assert play(Twin(), LONG) is None  # type: ignore[arg-type]


def test_an_eviction_that_is_not_told_is_found_and_its_history_shrunk() -> None:
    difference = play(Twin(forgets="m2"), LONG)  # type: ignore[arg-type]
    assert difference is not None
    assert (difference.what, difference.artemis, difference.engine) == ("evicted", [], ["m2"])
    found: list[Difference] = []

    def fails(fewer: History) -> bool:
        difference = play(Twin(forgets="m2"), fewer)  # type: ignore[arg-type]
        found.extend([difference] if difference else [])
        return difference is not None

    shortest = shrink(LONG, fails)
    assert [operation.kind for operation in shortest.operations] == ["send", "send", "send"]
    assert shortest.operations[0].name == "m2"
    assert found[-1].step == 3
    assert str(found[-1]).startswith("after operation 3 (send name=m")


def test_shrinking_leaves_only_what_it_takes() -> None:
    takes = {"m3", "m7"}

    def fails(fewer: History) -> bool:
        return takes <= {operation.name for operation in fewer.operations}

    shortest = shrink(of(*["send"] * 10), fails)
    assert {operation.name for operation in shortest.operations} == takes


def test_a_seed_gives_one_history_with_all_it_needs() -> None:
    assert history(17, 30) == history(17, 30) != history(18, 30)
    drawn = [history(seed, 30) for seed in range(100)]
    assert all(len(each.operations) == 30 for each in drawn)
    kinds = {operation.kind for each in drawn for operation in each.operations}
    assert kinds == set(KINDS)
    assert {operation.name for each in drawn for operation in each.operations} >= {*CONSUMERS}
    assert {each.settings.ring_size for each in drawn} == {-1, 1, 2, 3, 4, 5, 6}


def test_what_came_too_early_is_no_difference_but_late() -> None:
    clock = Clock(slot_ms=50)
    due_ms = clock.after(1)
    clock.check(due_ms - 1, {due_ms}, since_ms=0)
    clock.check(due_ms + 1, {due_ms}, since_ms=due_ms)  # it was waited for
    with pytest.raises(Late):
        clock.check(due_ms, {due_ms}, since_ms=0)


@pytest.mark.slow
def test_the_engine_answers_as_artemis_does() -> None:
    """`make oracle` plays 200."""
    with Artemis() as artemis:
        for seed in range(40):
            assert play(artemis, history(seed, 30)) is None, f"make oracle RUNS=1 SEED={seed}"
