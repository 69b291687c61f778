"""Start positions: missing state is an error, and nothing is skipped silently (R111, R112)."""

from __future__ import annotations

import pytest

from ringfaust.kafka.offsets import CommittedOffset, changelog_metadata, repartition_metadata
from ringfaust.protocol.gaps import Gap, GapCause
from ringfaust.worker.interfaces import Bounds, StateLost
from ringfaust.worker.partition.input_positions import (
    GapFound,
    Starts,
    check_changelog,
    log_gaps,
    start_positions,
)

BOUNDS = {"in": Bounds(10, 100, "one"), "control": Bounds(0, 5, "c")}
IDS = {"in": "one", "control": "c"}


def starts(
    stored: dict[str, int],
    committed: dict[str, int | CommittedOffset] | None = None,
    ids: dict[str, str] = IDS,
    bounds: dict[str, Bounds] = BOUNDS,
) -> Starts:
    given = {
        topic: found if isinstance(found, CommittedOffset) else CommittedOffset(found)
        for topic, found in (committed or {}).items()
    }
    return start_positions(0, stored, ids, bounds, given)


def test_a_new_partition_starts_at_the_beginning_of_its_topics() -> None:
    assert starts({}, ids={}) == ({"in": 10, "control": 0}, [])


def test_stored_positions_need_no_group_offsets() -> None:
    assert starts({"in": 50, "control": 2}) == ({"in": 50, "control": 2}, [])


def test_a_topic_without_a_stored_position_starts_at_the_group_offset() -> None:
    stored = {"control": 2}
    assert starts(stored, {"in": 70, "control": 2}).positions["in"] == 70
    assert starts(stored, {"control": 2}).positions["in"] == 10


@pytest.mark.parametrize(
    ("stored", "committed", "ids", "message"),
    [
        ({}, {"in": 50}, IDS, "the changelog was deleted"),
        ({"in": 49, "control": 0}, {"in": 50}, IDS, "lost its end"),
        ({"in": 101, "control": 0}, {}, {}, "ends at offset 100, but was read up to 101"),
    ],
)
def test_missing_state_is_an_error(
    stored: dict[str, int],
    committed: dict[str, int | CommittedOffset],
    ids: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(StateLost, match=message):
        starts(stored, committed, ids)


def test_offsets_committed_with_an_earlier_changelog_are_an_error() -> None:
    """A worker may have written to the new one before it noticed, so it need not be empty."""
    group = {"in": CommittedOffset(50, changelog_metadata("before"))}
    with pytest.raises(StateLost, match="deleted and created again since .* offset 50 of in,"):
        check_changelog(0, "now", group)


@pytest.mark.parametrize(
    ("topic_id", "metadata"),
    [
        ("one", changelog_metadata("one")),
        ("one", ""),
        ("one", repartition_metadata("of another topic")),
        ("", changelog_metadata("one")),
    ],
    ids=["same", "earlier release", "repartitioned", "old brokers"],
)
def test_other_offsets_say_nothing_against_the_changelog(topic_id: str, metadata: str) -> None:
    check_changelog(0, topic_id, {"in": CommittedOffset(50, metadata)})


def test_records_deleted_before_they_were_read_are_a_gap() -> None:
    found = starts({"in": 4, "control": 0})
    assert found == ({"in": 10, "control": 0}, [Gap("in", 0, 4, 9, GapCause.DELETED)])


def test_a_log_that_lost_its_end_is_a_gap() -> None:
    found = starts({"in": 103, "control": 0})
    assert found == ({"in": 100, "control": 0}, [Gap("in", 0, 100, 102, GapCause.TRUNCATED)])


@pytest.mark.parametrize("group", [{}, {"in": 20}])
def test_a_recreated_topic_starts_at_its_beginning(group: dict[str, int | CommittedOffset]) -> None:
    bounds = {"in": Bounds(0, 25, "two")}
    found = starts({"in": 20}, group, bounds=bounds)
    assert found == ({"in": 0}, [Gap("in", 0, 20, None, GapCause.RECREATED)])


def test_what_the_new_topic_has_lost_is_a_gap_of_its_own() -> None:
    found = starts({"in": 20}, bounds={"in": Bounds(3, 25, "two")})
    recreated = Gap("in", 0, 20, None, GapCause.RECREATED)
    assert found == ({"in": 3}, [recreated, Gap("in", 0, 0, 2, GapCause.DELETED)])


def test_an_unknown_id_is_adopted() -> None:
    assert starts({"in": 50, "control": 2}, ids={}) == ({"in": 50, "control": 2}, [])
    too_old = {"in": Bounds(10, 100)}
    assert starts({"in": 50}, bounds=too_old) == ({"in": 50}, [])


def test_a_topic_that_was_repartitioned_since_continues_at_the_groups_offset() -> None:
    """R113: its stored position is from before, and must not be taken for lost state."""
    group = CommittedOffset(70, repartition_metadata("one"))
    assert starts({"in": 50, "control": 2}, {"in": group, "control": 2}) == (
        {"in": 70, "control": 2},
        [],
    )
    group = CommittedOffset(70, repartition_metadata("before"))
    found = starts({"in": 50, "control": 2}, {"in": group, "control": 2})
    assert found.gaps == [
        Gap("in", 0, 70, None, GapCause.RECREATED),
        Gap("in", 0, 0, 9, GapCause.DELETED),
    ]


def test_a_gap_is_logged_or_stops_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    gap = Gap("in", 3, 4, 9, GapCause.DELETED)
    log_gaps([gap], stop=False)
    assert "in, partition 3: the records at offsets 4 to 9 were deleted" in caplog.text
    with pytest.raises(GapFound, match="on_gap: continue"):
        log_gaps([gap], stop=True)
