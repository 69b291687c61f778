"""The benchmark of changes: which rings a change concerns, and the table."""

from __future__ import annotations

import pytest

from bench.availability import CHANGES, Found, _moved, table


def test_the_table_has_the_medians_of_each_change() -> None:
    rounds = [Found(0.2, 0.3, 1.0), Found(0.2, 0.5, 3.0), Found(0.4, None, 2.0)]
    assert table(3, 1_000_000, {"a kill": rounds}) == [
        "3 brokers, 1,000,000 other messages per partition:",
        "",
        "| change | steady (s) | rings whose worker stays | rings that move |",
        "|---|---|---|---|",
        "| a kill | 0.20 | 0.40 | 2.00 |",
        "",
    ]


@pytest.mark.parametrize(
    ("whose", "moved"), [("worker 1", {0, 1, 3}), ("all", {0, 1, 2, 3}), ("none", set())]
)
def test_a_change_concerns_what_worker_1_has_or_had(whose: str, moved: set[int]) -> None:
    before, after = {0: 1, 1: 1, 2: 0, 3: 0}, {0: 0, 1: 1, 2: 0, 3: 1}
    assert _moved(whose, before, after) == moved
    assert whose in {each.moves for each in CHANGES}
