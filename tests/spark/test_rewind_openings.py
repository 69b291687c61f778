"""A rewind of a lake begins at the last closing before the moment, and says the same."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest
from delta.tables import DeltaTable
from pyspark.sql import Row, SparkSession

from ringfaust.core.model import COUNTS
from ringfaust.spark.lake import gold
from ringfaust.spark.lake.tables import path, read
from ringfaust.spark.lines import read_lines
from ringfaust.spark.rewind.contents import TruncatedHistory, UnknownQueue, read_contents
from ringfaust.spark.rewind.diff import read_diff
from ringfaust.spark.rewind.moment import AtStep, AtTime
from ringfaust.spark.rewind.opening import BEGINNING, Opening, find_opening, lines_from
from tests.spark.batched_lake import BatchedLake
from tests.spark.rewind_log import DAY_MS, QUEUES, RecordedHistory

DAYS, A_DAY, A_BATCH = 3, 400, 200
STARTS = (0, *range(A_DAY, DAYS * A_DAY, A_BATCH))
"""The first command of each batch: the first day is one batch, the others are two."""
CLOSINGS = [STARTS.index(day * A_DAY) for day in range(1, DAYS)]
"""The batches that close a day."""


def _write(lake: BatchedLake, recorded: RecordedHistory) -> None:
    """Write a history in batches. The first of each day closes the day before.

    Each closing is interrupted before its last table, and done again.
    """
    interrupted = set()
    write = gold.write_counts

    def fail_once(spark: SparkSession, root: str, batch: int) -> None:
        if batch not in interrupted:
            interrupted.add(batch)
            raise RuntimeError("power cut")
        write(spark, root, batch)

    with patch.object(gold, "write_counts", fail_once):
        for start, end in pairwise((*STARTS, DAYS * A_DAY)):
            batches = recorded.batches[start:end]
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
        answer = recorded.held[row["queue"], row["step"]]["counts"]
        assert {name: row[name] for name in COUNTS} == {name: answer[name] for name in COUNTS}
        assert recorded.steps_until[row["time_ms"]] >= row["step"]


def test_the_contents_after_a_closing_equal_those_of_the_core(
    lake: BatchedLake, recorded: RecordedHistory
) -> None:
    later, second = _later(recorded), recorded.steps[2 * A_DAY + A_BATCH]
    batches = []
    for days in ([at for at in later if at[1] < second], [at for at in later if at[1] > second]):
        chosen = random.Random(3).sample(days, 12)
        asked = [(queue, AtStep(0, step)) for queue, step in chosen]
        opening = find_opening(lake.spark, lake.root, asked)
        found = read_contents(lines_from(lake.spark, lake.root, opening), asked, opening)
        assert [contents.answer() for (contents,) in found] == [recorded.held[at] for at in chosen]
        batches += {row["batch"] for row in opening.rows}
    assert batches == CLOSINGS


def test_several_queues_at_a_time_have_one_opening(
    lake: BatchedLake, recorded: RecordedHistory
) -> None:
    time_ms = sorted(recorded.steps_until)[-5]
    asked = [(queue, AtTime(time_ms)) for queue in QUEUES]
    opening = find_opening(lake.spark, lake.root, asked)
    assert {row["batch"] for row in opening.rows} == {CLOSINGS[-1]}
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
        assert opening.rows
        lines = lines_from(lake.spark, lake.root, opening)
        moments = (AtStep(0, first), AtStep(0, second))
        (found,) = read_diff(lines, queue, *moments, 10_000)
        assert [found] == read_diff(whole, queue, *moments, 10_000)
        assert found.changes


def test_an_opening_needs_fewer_lines(lake: BatchedLake, recorded: RecordedHistory) -> None:
    asked = [("plain", AtStep(0, recorded.steps[-1]))]
    opening = find_opening(lake.spark, lake.root, asked)
    plain = "queue = 'plain'"
    needed = lines_from(lake.spark, lake.root, opening).filter(plain)
    whole = read(lake.spark, lake.root, "transitions").filter(plain)
    assert len(needed.inputFiles()) < len(whole.inputFiles())
    held = recorded.held["plain", opening.rows[0]["step"]]["counts"]["messages"]
    earlier = needed.filter(f"step <= {opening.rows[0]['step']} AND event = 'added'")
    assert held <= earlier.count() < 3 * QUEUES["plain"]["ring_size"]


def _line(step: int, event: str, sequence: int | None = None, **fields: object) -> str:
    about = {"sequence": sequence, "id": f"m{sequence}"} if sequence else {}
    entry = {"source": "in/0/0", "enqueued_ms": 1, "priority": 4} if event == "added" else {}
    line = {"step": step, "event": event, "queue": "q", "time_ms": step, "by": "in/0/0"}
    return json.dumps({**line, **about, **entry, **fields})


def _counts(partition: int, **counts: int | None) -> Row:
    """The row of a queue at a closing of batch 0, step 10."""
    none = dict.fromkeys((*COUNTS, "life"), 0) | {"oldest_sequence": None}
    return Row(partition=partition, queue="q", batch=0, step=10, **{**none, **counts})


def test_each_partition_of_a_queue_continues_its_own_counts(spark: SparkSession) -> None:
    """One is idle, one had held a message, one is deleted later, and one begins later."""
    batches = [
        (1, 0, [_line(3, "added", 1), _line(4, "added", 2), _line(5, "removed", 1)]),
        (1, 1, [_line(4, "added", 2), _line(12, "removed", 2), _line(13, "added", 3)]),
        (2, 1, [_line(11, "removed", 1), _line(12, "deleted"), _line(13, "added", 1)]),
        (3, 1, [_line(11, "added", 1)]),
    ]
    records = [
        (n, offset, None, bytearray("\n".join(lines), "ascii"), batch)
        for offset, (n, batch, lines) in enumerate(batches)
    ]
    schema = "partition int, offset long, timestamp timestamp, value binary, batch long"
    lines = read_lines(spark.createDataFrame(records, schema), "batch")
    opening = Opening([
        _counts(0, added=3, acked=3, refused=2, last_sequence=3),
        _counts(1, added=2, ready=1, removed=1, last_sequence=2, oldest_sequence=2),
        _counts(2, added=1, ready=1, last_sequence=1, oldest_sequence=1),
    ])  # fmt: skip
    asked = [("q", AtTime(20)), ("q", AtStep(1, 20))]
    found, (second,) = read_contents(lines.filter(opening.needs()), asked, opening)
    assert [contents.partition for contents in found] == [0, 1, 2, 3]
    counts = [{name: n for name, n in each.counts.items() if n} for each in found]
    assert counts == [
        {"added": 3, "acked": 3, "refused": 2},
        {"added": 3, "removed": 2, "ready": 1, "messages": 1},
        {"added": 1, "ready": 1, "messages": 1},
        {"added": 1, "ready": 1, "messages": 1},
    ]
    assert second == replace(found[1], moment=AtStep(1, 20))
    assert [message.id for message in second.held["ready"]] == ["m3"]


def test_lines_that_a_retention_has_deleted_are_missed_only_if_they_are_needed(
    lake: BatchedLake, recorded: RecordedHistory
) -> None:
    """Last: it deletes them."""
    transitions = DeltaTable.forPath(lake.spark, path(lake.root, "transitions"))
    transitions.delete("date < DATE '1970-01-03'")
    whole = read(lake.spark, lake.root, "transitions")
    later = [("plain", AtStep(0, recorded.steps[-1]))]
    opening = find_opening(lake.spark, lake.root, later)
    ((contents,),) = read_contents(lines_from(lake.spark, lake.root, opening), later, opening)
    assert contents.answer() == recorded.held["plain", recorded.steps[-1]]
    with pytest.raises(TruncatedHistory):
        read_contents(whole, later)

    deleted = [("plain", AtStep(0, recorded.steps[2 * A_DAY - 5]))]
    opening = find_opening(lake.spark, lake.root, deleted)
    assert opening == BEGINNING, "the lines since the closing before are gone"
    with pytest.raises((TruncatedHistory, UnknownQueue)):
        read_contents(lines_from(lake.spark, lake.root, opening), deleted, opening)
