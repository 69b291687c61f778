"""What is remembered of ended deliveries (R103)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringfaust.core import limits
from ringfaust.core.model import Refusal
from ringfaust.core.settlement_history import PAGE, SettlementHistory
from ringfaust.core.table import Kind, WriteSet
from tests.model.harness import DictStore

AT_LEAST = 1_000
"""R103's number, not ours to change."""


class Kept:
    """A ledger with its store; `again` saves it and opens it anew."""

    def __init__(self) -> None:
        self.store = DictStore()
        self.departures = (0, 0)
        self.open()

    def open(self) -> None:
        self.book = WriteSet(self.store)
        self.ledger = SettlementHistory(self.book, "q", self.departures)

    def commit(self) -> None:
        self.ledger.save()
        for table in self.book.dirty:
            self.store.apply(table.writes())
            table.settle()
        self.book.dirty.clear()
        self.departures = self.ledger.departures

    def again(self) -> SettlementHistory:
        self.commit()
        self.open()
        return self.ledger

    def rows(self, kind: Kind) -> int:
        return sum(row[0] == kind for row in self.store.rows)


@pytest.fixture(params=[False, True], ids=["in memory", "read again"])
def kept(request: pytest.FixtureRequest) -> tuple[Kept, Callable[[], SettlementHistory]]:
    """A ledger, and how to get at it: as it is, or as it is read back."""
    it = Kept()
    return it, (it.again if request.param else lambda: it.ledger)


def test_the_three_answers(kept: tuple[Kept, Callable[[], SettlementHistory]]) -> None:
    it, ledger = kept
    assert ledger().judge("k", "m") is Refusal.BAD_COMMAND
    it.ledger.arrive("k")
    assert ledger().judge("k", "m") is Refusal.UNKNOWN_DELIVERY
    it.ledger.remember("k", "m")
    assert ledger().judge("k", "m") is Refusal.STALE_DELIVERY
    it.ledger.evicted(("k", "other"), "m")
    assert ledger().judge("k", "m") is Refusal.EVICTED
    assert ledger().judge("k", "n") is Refusal.UNKNOWN_DELIVERY
    it.ledger.depart("k")
    assert ledger().judge("k", "m") is Refusal.EVICTED
    it.ledger.arrive("k")
    it.ledger.remember("k", "m")
    assert ledger().judge("k", "m") is Refusal.STALE_DELIVERY


def test_at_least_the_last_thousand_are_remembered(
    kept: tuple[Kept, Callable[[], SettlementHistory]],
) -> None:
    it, ledger = kept
    it.ledger.arrive("k")
    total = AT_LEAST * 3 + 7
    for number in range(total):
        it.ledger.remember("k", f"m{number}")
        if number % 333 == 0:
            ledger()
        oldest = f"m{max(0, number - AT_LEAST + 1)}"
        assert it.ledger.judge("k", oldest) is Refusal.STALE_DELIVERY
    assert ledger().judge("k", "m0") is Refusal.UNKNOWN_DELIVERY
    it.ledger.evicted(("k",), f"m{total - AT_LEAST}")
    assert ledger().judge("k", f"m{total - AT_LEAST}") is Refusal.EVICTED
    it.commit()
    assert it.rows(Kind.ENDED) <= AT_LEAST // PAGE + 1


def test_who_left_longest_ago_is_forgotten_first(
    kept: tuple[Kept, Callable[[], SettlementHistory]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEPARTED_REMEMBERED", 3)
    it, ledger = kept
    for name in ("a", "b", "c"):
        it.ledger.arrive(name)
        it.ledger.remember(name, "m")
        it.ledger.depart(name)
    ledger().arrive("a")
    it.ledger.depart("a")  # it was here since, so b is the one to go
    assert ledger().judge("a", "m") is Refusal.STALE_DELIVERY
    for name in ("d", "e"):
        ledger().arrive(name)
        it.ledger.depart(name)
    answers = {name: ledger().judge(name, "m") for name in "abcde"}
    assert answers == {
        "a": Refusal.STALE_DELIVERY,
        "b": Refusal.BAD_COMMAND,
        "c": Refusal.BAD_COMMAND,
        "d": Refusal.UNKNOWN_DELIVERY,
        "e": Refusal.UNKNOWN_DELIVERY,
    }
    it.commit()
    assert (it.rows(Kind.PAST), it.rows(Kind.DEPARTED), it.rows(Kind.ENDED)) == (3, 3, 1)


def test_who_is_attached_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEPARTED_REMEMBERED", 2)
    it = Kept()
    it.ledger.arrive("stays")
    it.ledger.remember("stays", "m")
    it.ledger.depart("stays")
    it.ledger.arrive("stays")
    for number in range(9):
        it.ledger.arrive(f"k{number}")
        it.ledger.depart(f"k{number}")
    assert it.again().judge("stays", "m") is Refusal.STALE_DELIVERY


def test_erase_leaves_no_row() -> None:
    it = Kept()
    for name in ("a", "b"):
        it.ledger.arrive(name)
        for number in range(250):
            it.ledger.remember(name, f"m{number}")
    it.ledger.depart("a")
    it.again()
    it.ledger.remember("b", "last")
    it.ledger.erase()
    it.commit()
    assert it.store.rows == {}
