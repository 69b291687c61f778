"""More of what an importer must not say is taken over: NOT, diverts, prefixes, name spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.importers.imported import Verdict
from tests.importers.test_neighbours import artemis, filtered


@pytest.mark.parametrize(("text", "selector"), [
    ("NOT a = TRUE", "(NOT a) = TRUE"), ("NOT NOT a = FALSE", "(NOT NOT a) = FALSE"),
    ("b = 1 OR NOT (a) = TRUE", "b = 1 OR (NOT (a)) = TRUE"), ("NOT a", "NOT a"),
    ("NOT (a = 'x')", "NOT (a = 'x')"), ("NOT a AND b = 1", "NOT a AND b = 1"),
    ("(NOT a) OR b NOT IN ('NOT a = 1')", "(NOT a) OR b NOT IN ('NOT a = 1')"),
    ("b IS NOT NULL AND c NOT BETWEEN 1 AND 2", "b IS NOT NULL AND c NOT BETWEEN 1 AND 2"),
])  # fmt: skip
def test_not_binds_as_in_artemis(text: str, selector: str, tmp_path: Path) -> None:
    verdict = Verdict.TAKEN if selector == text else Verdict.CHANGED
    assert filtered(tmp_path, text) == (selector, verdict)


@pytest.mark.parametrize("text", [
    "NOT a = 'x'", "NOT a LIKE 'x%'", "NOT a IN ('x')", "NOT n BETWEEN 1 AND 9", "NOT n &gt; 3",
    "NOT a IS NULL", "b = 1 AND NOT a = 'x'",
])  # fmt: skip
def test_a_filter_that_artemis_reads_as_not_of_its_first_operand(text: str, tmp_path: Path) -> None:
    """In JMS it is NOT of the comparison; Artemis 2.44 takes it for never true, or refuses it."""
    assert filtered(tmp_path, text) == ("", Verdict.NONE)
