"""A rewind of a lake begins at the last closing before the moment, and says the same."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ringfaust.core.model import COUNTS
from ringfaust.spark.lake import gold
from ringfaust.spark.lake.queries import GoldQueries
from ringfaust.spark.lake.tables import QUEUE_COUNTS, LakeTable, path, read
from ringfaust.spark.rewind.contents import TruncatedHistory, read_contents
from ringfaust.spark.rewind.diff import read_diff
from ringfaust.spark.rewind.moment import AtStep, AtTime
from ringfaust.spark.rewind.opening import BEGINNING, find_opening, lines_from
from tests.spark.batched_lake import BatchedLake
from tests.spark.rewind_log import DAY_MS, QUEUES, RecordedHistory

DAYS, A_DAY, A_BATCH = 3, 400, 200
NO_COUNTS = dict.fromkeys(COUNTS, 0)
"""Of a queue that has lines, but does not exist."""


def _write(lake: BatchedLake, recorded: RecordedHistory) -> None:
    """Write a history in batches. The first of each day closes the day before.

    Each closing is interrupted between its last two tables, and done again.
    """
    interrupted = set()
    append = GoldQueries.append

    def fail_once(self: GoldQueries, query: str, table: LakeTable, batch: int, **more: Any) -> None:
        if table is QUEUE_COUNTS and batch not in interrupted:
            interrupted.add(batch)
            raise RuntimeError("power cut")
        append(self, query, table, batch, **more)

    with patch.object(GoldQueries, "append", fail_once):
        for start in range(0, DAYS * A_DAY, A_BATCH):
            batches = recorded.batches[start : start + A_BATCH]
            values = ["\n".join(lines).encode() for lines in batches if lines]
            lake.write(values, 1_000 + start // A_DAY * DAY_MS)
            for _ in range(2):
                with suppress(RuntimeError):
                    gold.catch_up(lake.spark, lake.root, lake.batch)
    assert len(interrupted) == DAYS - 1


@pytest.fixture(scope="module")
def recorded() -> RecordedHistory:
    return RecordedHistory(7, DAYS * A_DAY, A_DAY)


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, recorded: RecordedHistory, tmp_path_factory: pytest.TempPathFactory
) -> BatchedLake:
    made = BatchedLake(spark, tmp_path_factory.mktemp("openings") / "lake")
    _write(made, recorded)
    return made


def _later(recorded: RecordedHistory) -> list[tuple[str, int]]:
    """Queues and steps after the first closing."""
    first = recorded.steps[A_DAY + A_BATCH]
    return sorted(at for at in recorded.held if at[1] > first)


def test_each_closing_has_the_counts_of_the_queues(
    lake: BatchedLake, recorded: RecordedHistory
) -> None:
    rows = read(lake.spark, lake.root, "queue_counts").collect()
    assert len({row["batch"] for row in rows}) == DAYS - 1
    assert len(rows) >= (DAYS - 1) * (len(QUEUES) - 1)
    for row in rows:
        answer = recorded.held.get((row["queue"], row["step"]), {"counts": NO_COUNTS})
        counts = {name: answer["counts"][name] for name in COUNTS}
        assert {name: row[name] for name in COUNTS} == counts
        assert recorded.steps_until[row["time_ms"]] >= row["step"]


def test_the_contents_after_a_closing_equal_those_of_the_core(
    lake: BatchedLake, recorded: RecordedHistory
) -> None:
    batches = set()
    for queue, step in random.Random(3).sample(_later(recorded), 12):
        asked = [(queue, AtStep(0, step))]
        opening = find_opening(lake.spark, lake.root, asked)
        ((contents,),) = read_contents(lines_from(lake.spark, lake.root, opening), asked, opening)
        assert contents.answer() == recorded.held[queue, step]
        batches.add(opening.batch)
    assert len(batches) >= DAYS - 1


def test_several_queues_at_a_time_have_one_opening(
    lake: BatchedLake, recorded: RecordedHistory
) -> None:
    time_ms = sorted(recorded.steps_until)[-5]
    asked = [(queue, AtTime(time_ms)) for queue in QUEUES]
    opening = find_opening(lake.spark, lake.root, asked)
    assert opening.batch == (DAYS - 1) * A_DAY // A_BATCH
    found = read_contents(lines_from(lake.spark, lake.root, opening), asked, opening)
    step = recorded.steps_until[time_ms]
    assert [one.answer() for (one,) in found] == [recorded.held[queue, step] for queue in QUEUES]


def test_a_moment_before_all_closings_begins_with_the_first_line(
    lake: BatchedLake, recorded: RecordedHistory
) -> None:
    early = recorded.steps[A_DAY // 2]
    assert find_opening(lake.spark, lake.root, [("plain", AtStep(0, early))]) == BEGINNING
    assert find_opening(lake.spark, lake.root, [("nobody", AtStep(0, 10_000))]) == BEGINNING


def test_a_diff_after_a_closing_is_that_of_the_whole_history(
    lake: BatchedLake, recorded: RecordedHistory
) -> None:
    whole = read(lake.spark, lake.root, "transitions")
    first, second = (recorded.steps[2 * A_DAY + more] for more in (210, 270))
    for queue in ("plain", "mixed"):
        opening = find_opening(lake.spark, lake.root, [(queue, AtStep(0, first))])
        assert opening.batch > 0
        lines = lines_from(lake.spark, lake.root, opening)
        moments = (AtStep(0, first), AtStep(0, second))
        (found,) = read_diff(lines, queue, *moments, 10_000)
        assert [found] == read_diff(whole, queue, *moments, 10_000)
        assert found.changes


def test_days_before_a_closing_are_not_needed(lake: BatchedLake, recorded: RecordedHistory) -> None:
    """Last: it deletes them."""
    asked = [("plain", AtStep(0, recorded.steps[-1]))]
    opening = find_opening(lake.spark, lake.root, asked)
    transitions = DeltaTable.forPath(lake.spark, path(lake.root, "transitions"))
    transitions.delete(f"batch <= {opening.batch}")
    ((contents,),) = read_contents(lines_from(lake.spark, lake.root, opening), asked, opening)
    assert contents.answer() == recorded.held["plain", recorded.steps[-1]]
    with pytest.raises(TruncatedHistory):
        read_contents(read(lake.spark, lake.root, "transitions"), asked)
