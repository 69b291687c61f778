"""A short run of `make fuzz`, without its limit on time (R120, R121)."""

from __future__ import annotations

import pytest

from tests.fuzz import costs

FEW = 80
"""Steps of a short history."""


@pytest.mark.parametrize("seed", range(2))
def test_no_transaction_takes_too_much(seed: int) -> None:
    assert [str(fault) for fault in costs.faults(seed, traces=True, steps=FEW)] == []


@pytest.mark.parametrize(
    ("name", "what"),
    [("TOPIC_BYTES", "a record of"), ("TOPIC_BYTES", "a row of"), ("MOST_GROWN", "of memory")],
)
def test_what_is_too_large_is_found(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, name, 1_000)
    found = next(fault for fault in costs.faults(0, traces=True, steps=FEW) if what in fault.what)
    assert str(found).startswith("seed 0: ")
