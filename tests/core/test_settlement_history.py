"""What is remembered of ended deliveries (R103)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringfaust.core import limits
from ringfaust.core.model import Refusal
from ringfaust.core.settlement_history import PAGE, SettlementHistory
from ringfaust.core.table import Kind, WriteSet
from tests.model.harness import DictStore, rows_of

AT_LEAST = 1_000
"""R103's number, not ours to change."""


class Kept:
    """A history with its store; `again` saves and reopens it."""

    def __init__(self) -> None:
        self.store = DictStore()
        self.departures = (0, 0)
        self.open()

    def open(self) -> None:
        self.write_set = WriteSet(self.store)
        self.history = SettlementHistory(self.write_set, "q", self.departures)

    def commit(self) -> None:
        self.history.save()
        for table in self.write_set.dirty:
            self.store.apply(rows_of([table.writes()]))
            table.committed()
        self.write_set.dirty.clear()
        self.departures = self.history.departures

    def again(self) -> SettlementHistory:
        self.commit()
        self.open()
        return self.history

    def rows(self, kind: Kind) -> int:
        return sum(row[0] == kind for row in self.store.rows)


@pytest.fixture(params=[False, True], ids=["in memory", "read again"])
def kept(request: pytest.FixtureRequest) -> tuple[Kept, Callable[[], SettlementHistory]]:
    """A history, and how to get at it: as it is, or as it is read back."""
    it = Kept()
    return it, (it.again if request.param else lambda: it.history)


def test_a_late_settle_gets_its_reason(kept: tuple[Kept, Callable[[], SettlementHistory]]) -> None:
    it, history = kept
    assert history().classify("k", "m") is Refusal.BAD_COMMAND
    it.history.arrive("k")
    assert history().classify("k", "m") is Refusal.UNKNOWN_DELIVERY
    it.history.remember("k", "m")
    assert history().classify("k", "m") is Refusal.STALE_DELIVERY
    it.history.mark_evicted(("k", "other"), "m")
    assert history().classify("k", "m") is Refusal.EVICTED
    assert history().classify("k", "n") is Refusal.UNKNOWN_DELIVERY
    it.history.depart("k")
    assert history().classify("k", "m") is Refusal.EVICTED
    it.history.arrive("k")
    it.history.remember("k", "m")
    assert history().classify("k", "m") is Refusal.STALE_DELIVERY


def test_at_least_the_last_thousand_are_remembered(
    kept: tuple[Kept, Callable[[], SettlementHistory]],
) -> None:
    it, history = kept
    it.history.arrive("k")
    total = AT_LEAST * 3 + 7
    for number in range(total):
        it.history.remember("k", f"m{number}")
        if number % 333 == 0:
            history()
        oldest = f"m{max(0, number - AT_LEAST + 1)}"
        assert it.history.classify("k", oldest) is Refusal.STALE_DELIVERY
    assert history().classify("k", "m0") is Refusal.UNKNOWN_DELIVERY
    it.history.mark_evicted(("k",), f"m{total - AT_LEAST}")
    assert history().classify("k", f"m{total - AT_LEAST}") is Refusal.EVICTED
    it.commit()
    assert it.rows(Kind.ENDED) <= AT_LEAST // PAGE + 1


def test_the_consumer_that_detached_longest_ago_is_forgotten_first(
    kept: tuple[Kept, Callable[[], SettlementHistory]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEPARTED_REMEMBERED", 3)
    it, history = kept
    for name in ("a", "b", "c"):
        it.history.arrive(name)
        it.history.remember(name, "m")
        it.history.depart(name)
    history().arrive("a")
    it.history.depart("a")  # it was here since, so b is the one to go
    assert history().classify("a", "m") is Refusal.STALE_DELIVERY
    for name in ("d", "e"):
        history().arrive(name)
        it.history.depart(name)
    answers = {name: history().classify(name, "m") for name in "abcde"}
    assert answers == {
        "a": Refusal.STALE_DELIVERY,
        "b": Refusal.BAD_COMMAND,
        "c": Refusal.BAD_COMMAND,
        "d": Refusal.UNKNOWN_DELIVERY,
        "e": Refusal.UNKNOWN_DELIVERY,
    }
    it.commit()
    assert (it.rows(Kind.PAST), it.rows(Kind.DEPARTED), it.rows(Kind.ENDED)) == (3, 3, 1)


def test_an_attached_consumer_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEPARTED_REMEMBERED", 2)
    it = Kept()
    it.history.arrive("stays")
    it.history.remember("stays", "m")
    it.history.depart("stays")
    it.history.arrive("stays")
    for number in range(9):
        it.history.arrive(f"k{number}")
        it.history.depart(f"k{number}")
    assert it.again().classify("stays", "m") is Refusal.STALE_DELIVERY


def test_erase_leaves_no_row() -> None:
    it = Kept()
    for name in ("a", "b"):
        it.history.arrive(name)
        for number in range(250):
            it.history.remember(name, f"m{number}")
    it.history.depart("a")
    it.again()
    it.history.remember("b", "last")
    it.history.erase()
    it.commit()
    assert it.store.rows == {}
