"""The engine beside Artemis in plain lists; that a difference is found; and, slow, the real one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.artemis import Artemis
from tests.oracle.broker_xml import imported_fields, write_broker_xml
from tests.oracle.clock import Clock, Late
from tests.oracle.comparing import Difference
from tests.oracle.engine import fields_of
from tests.oracle.game import play
from tests.oracle.naive import Message, Naive
from tests.oracle.operations import CONSUMERS, History, Operation, Settings, history
from tests.shortest import shortest

KINDS = """
    ack advance attach burst close commit credit deliver_now pause recover reject release resize
    resume rollback send
""".split()
SEEDS = 300


def test_the_engine_answers_like_a_naive_artemis() -> None:
    naive = Naive()
    for seed in range(SEEDS):
        difference = play(naive, history(seed, 30))
        assert difference is None, f"seed {seed}: {difference}"


@pytest.mark.slow
def test_the_engine_answers_like_artemis() -> None:
    """`make oracle` plays 200."""
    with Artemis() as artemis:
        for seed in range(40):
            assert play(artemis, history(seed, 30)) is None, f"make oracle RUNS=1 SEED={seed}"


@pytest.mark.slow
def test_what_is_imported_answers_like_artemis_with_the_same_file() -> None:
    """`make oracle IMPORTED=1` plays 200."""
    with Artemis() as artemis:
        for seed in range(20):
            difference = play(artemis, history(seed, 30), imported=seed)
            assert difference is None, f"make oracle RUNS=1 SEED={seed} IMPORTED=1"


def test_an_import_reads_the_settings_that_the_file_means(tmp_path: Path) -> None:
    settings = Settings(ring_size=3, max_attempts=2, redelivery_delay=1)
    for seed in range(200):
        path = tmp_path / f"{seed}.xml"
        write_broker_xml(path, "shop.q1", settings, 137, random.Random(seed))
        found = imported_fields(path, "shop.q1")
        wanted = {k: v for k, v in fields_of(settings, 100).items() if k != "compat"}
        assert {name: found[name] for name in wanted} == wanted, path.read_text()


# --- the comparison ------------------------------------------------------------------------------


class Liar(Naive):
    """It does not tell of one eviction."""

    def _answer(self, began_ms: int) -> dict[str, Any]:
        self.facts = [fact for fact in self.facts if fact != ["evicted", "m2"]]
        return super()._answer(began_ms)


def of(*kinds: str) -> History:
    """A history of sends, and of others for the consumer c1."""
    operations = [
        Operation(kind, f"m{number}" if kind == "send" else "c1", number=1, priority=4)
        for number, kind in enumerate(kinds)
    ]
    settings = Settings(ring_size=2, max_attempts=10, redelivery_delay=0)
    return History(settings, tuple(operations))


def test_an_unreported_eviction_is_found_and_its_history_shrunk() -> None:
    long = of("send", "attach", "send", "ack", "send", "send", "close", "send", "send", "attach")
    assert play(Naive(), long) is None
    found: list[Difference] = []

    def fails(fewer: tuple[Operation, ...]) -> bool:
        difference = play(Liar(), long._replace(operations=fewer))
        found.extend([difference] if difference else [])
        return difference is not None

    kept = shortest(long.operations, fails)
    assert [operation.kind for operation in kept] == ["send", "send", "send"]
    assert kept[0].name == "m2"
    last = found[-1]
    assert (last.step, last.what, last.theirs, last.ours) == (3, "evicted", [], ["m2"])
    assert str(last).startswith("after operation 3 (send name=m")


def test_shrinking_keeps_only_what_is_needed() -> None:
    takes = {"m3", "m7"}

    def fails(fewer: tuple[str, ...]) -> bool:
        return takes <= {*fewer}

    assert {*shortest(tuple(f"m{number}" for number in range(10)), fails)} == takes


def test_a_seed_gives_one_history_and_all_that_is_promised_is_drawn() -> None:
    assert history(17, 30) == history(17, 30) != history(18, 30)
    drawn = [history(seed, 30) for seed in range(100)]
    assert all(len(each.operations) == 30 for each in drawn)
    assert {operation.kind for each in drawn for operation in each.operations} == set(KINDS)
    assert {operation.name for each in drawn for operation in each.operations} >= {*CONSUMERS}
    assert {each.settings.ring_size for each in drawn} == {-1, 1, 2, 3, 4, 5, 6}


class Slow(Naive):
    """What is scheduled comes due before the answer, which does not name it."""

    def _schedule(self, message: Message, *, tail: bool) -> None:
        super()._schedule(message, tail=tail)
        self._until(message.due_ms)


@pytest.mark.parametrize("kinds", [("send",), ("attach", "now", "release")])
def test_what_came_due_before_the_answer_is_late_and_not_a_difference(kinds: list[str]) -> None:
    operations = {
        "send": Operation("send", "m1", priority=4, due=1),
        "now": Operation("send", "m1", priority=4),
        "attach": Operation("attach", "c1", number=1),
        "release": Operation("release", "c1"),
    }
    settings = Settings(ring_size=2, max_attempts=10, redelivery_delay=1)
    with pytest.raises(Late):
        play(Slow(), History(settings, tuple(operations[kind] for kind in kinds)))


def test_an_early_observation_is_late_and_not_a_difference() -> None:
    clock = Clock(50, Naive())
    due_ms = clock.after(1)
    clock.check(due_ms - 1, {due_ms}, since_ms=0)
    clock.check(due_ms + 1, {due_ms}, since_ms=due_ms)  # it was waited for
    with pytest.raises(Late):
        clock.check(due_ms, {due_ms}, since_ms=0)
    clock.awaited = {due_ms + 1}
    with pytest.raises(Late):
        clock.after(1)
