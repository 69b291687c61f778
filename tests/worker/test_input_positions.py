"""Start positions: missing state is reported, and nothing is skipped silently."""

from __future__ import annotations

import pytest

from ringfaust.worker.changelog import StateLost
from ringfaust.worker.input_positions import start_positions
from ringfaust.worker.interfaces import Bounds

BOUNDS = {"in": Bounds(10, 100), "control": Bounds(0, 5)}


def test_a_new_partition_starts_at_the_beginning_of_its_topics() -> None:
    assert start_positions(0, {}, BOUNDS, {}) == {"in": 10, "control": 0}


def test_stored_positions_need_no_group_offsets() -> None:
    assert start_positions(0, {"in": 50, "control": 2}, BOUNDS, {}) == {"in": 50, "control": 2}


def test_a_topic_without_a_stored_position_starts_at_the_group_offset() -> None:
    stored = {"control": 2}
    assert start_positions(0, stored, BOUNDS, {"in": 70, "control": 2})["in"] == 70
    assert start_positions(0, stored, BOUNDS, {"control": 2})["in"] == 10


@pytest.mark.parametrize(
    ("stored", "committed", "message"),
    [
        ({}, {"in": 50}, "the changelog was deleted"),
        ({"in": 49, "control": 0}, {"in": 50}, "lost its end"),
        ({"in": 101, "control": 0}, {}, "ends at offset 100, but was read up to 101"),
    ],
)
def test_missing_state_is_an_error(
    stored: dict[str, int], committed: dict[str, int], message: str
) -> None:
    with pytest.raises(StateLost, match=message):
        start_positions(3, stored, BOUNDS, committed)


def test_records_deleted_before_they_were_read_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert start_positions(0, {"in": 4, "control": 0}, BOUNDS, {})["in"] == 10
    assert "records 4 to 9 were deleted before they were read" in caplog.text
