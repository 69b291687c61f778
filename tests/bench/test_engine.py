"""Each case of `python -m bench.engine` gets to its end, and has done what it times."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.engine import CASES, STAGES

SLOW = ("rings-10000", "rings-100000")
"""They differ from `rings-1000` only by a number."""
RECORDS = BATCH = 4_000


@pytest.mark.parametrize("name", sorted(CASES.keys() - SLOW))
def test_a_case_gets_to_its_end(name: str, tmp_path: Path) -> None:
    bench, count = CASES[name](tmp_path, RECORDS, BATCH)
    assert count > 0
    assert bench.rows > 0
    assert all(bench.seconds[stage] > 0 for stage in STAGES)
    assert not bench.processor.is_unfinished
