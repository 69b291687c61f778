"""Times as people write them."""

from __future__ import annotations

import pytest

from ringfaust.times import length_ms, moment_ms

NOW_MS = 1_764_241_200_000
"""2025-11-27T11:00:00Z."""


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("2min", 120_000), ("1h", 3_600_000),
     ("3d", 259_200_000), ("10 min", 600_000)],
)  # fmt: skip
def test_a_length_has_a_unit(text: str, ms: int) -> None:
    assert length_ms(text) == ms
    assert moment_ms(text, NOW_MS) == NOW_MS - ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("yesterday", 1_764_115_200_000),
        ("2025-11-25T10:00", 1_764_064_800_000),
        ("2025-11-25T10:00+02:00", 1_764_057_600_000),
        ("2025-11-25", 1_764_028_800_000),
        ("999999d", 0),
        ("1960-01-01", 0),
        ("0001-01-01T00:00+14:00", 0),
        ("9999-12-31T23:59:59.999-14:00", 253_402_300_799_999),
    ],
)
def test_a_time_is_a_date_or_so_long_ago(text: str, ms: int) -> None:
    """Without a zone it is UTC, as all times that are printed."""
    assert moment_ms(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["5", "1764241200000", "20251125"])
def test_a_number_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has no unit; write it like 1h, yesterday or 2026-"):
        moment_ms(text, NOW_MS)
    with pytest.raises(ValueError, match="has no unit; write it like 500ms"):
        length_ms(text)


@pytest.mark.parametrize("text", ["", "noon", "1 week", "-5s", "1.5h", "5 S", "٣s", "2025-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time|is not a length"):
        moment_ms(text, NOW_MS)
    with pytest.raises(ValueError, match="is not a length"):
        length_ms(text)
