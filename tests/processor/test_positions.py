"""Where to go on: what is missing is told loudly, and nothing is skipped in silence."""

from __future__ import annotations

import pytest

from ringfaust.worker.changelog import StateLost
from ringfaust.worker.input_positions import Bounds, start_positions

BOUNDS = {"in": Bounds(10, 100), "control": Bounds(0, 5)}


def test_a_new_partition_begins_at_what_there_is() -> None:
    assert start_positions(0, {}, BOUNDS, {}) == {"in": 10, "control": 0}


def test_positions_come_with_the_state_and_need_no_group_offsets() -> None:
    assert start_positions(0, {"in": 50, "control": 2}, BOUNDS, {}) == {"in": 50, "control": 2}


def test_a_topic_that_is_new_to_the_state_begins_where_the_group_was_set() -> None:
    known = {"control": 2}
    assert start_positions(0, known, BOUNDS, {"in": 70, "control": 2})["in"] == 70
    assert start_positions(0, known, BOUNDS, {"control": 2})["in"] == 10


@pytest.mark.parametrize(
    ("known", "committed", "told"),
    [
        ({}, {"in": 50}, "the changelog was deleted"),
        ({"in": 49, "control": 0}, {"in": 50}, "lost its end"),
        ({"in": 101, "control": 0}, {}, "ends at offset 100, but was read up to 101"),
    ],
)
def test_what_is_gone_is_told(known: dict[str, int], committed: dict[str, int], told: str) -> None:
    with pytest.raises(StateLost, match=told):
        start_positions(3, known, BOUNDS, committed)


def test_records_that_were_deleted_unread_are_told(caplog: pytest.LogCaptureFixture) -> None:
    assert start_positions(0, {"in": 4, "control": 0}, BOUNDS, {})["in"] == 10
    assert "records 4 to 9 were deleted before they were read" in caplog.text
