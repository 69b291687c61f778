"""The contents of a ring, compared with the core's own state after steps of a busy history."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ringfaust.core.catalog import Catalog
from ringfaust.errors import RingfaustError
from ringfaust.protocol.events import done_line, event_tail
from ringfaust.spark.lines import read_lines
from ringfaust.spark.options import RewindOptions
from ringfaust.spark.rewind.command import RewindRequest, read_options
from ringfaust.spark.rewind.contents import (
    TruncatedHistory,
    UnknownQueue,
    digest_answer,
    read_contents,
)
from ringfaust.spark.rewind.diff import WrongOrder, read_diff
from ringfaust.spark.rewind.moment import (
    AtOffset,
    AtStep,
    AtTime,
    BadMoment,
    Moment,
    read_moment,
    resolve_moments,
)
from ringfaust.spark.rewind.opening import LastLine
from ringfaust.spark.rewind.whatif import first_catalog
from tests.spark.rewind_log import QUEUES, RecordedHistory

HOP = "app.hop"


def to_lines(spark: SparkSession, batches: Sequence[Sequence[str]]) -> DataFrame:
    """Batches of lines as the records of partition 0 of an events topic."""
    rows = [
        (0, offset, None, bytearray("\n".join(batch), "ascii"))
        for offset, batch in enumerate(batches)
    ]
    schema = "partition int, offset long, timestamp timestamp, value binary"
    return read_lines(spark.createDataFrame(rows, schema))


def added(step: int, sequence: int, *, by: str = "in/0/0", source: str = "in/0/0") -> str:
    """The line of a plain send to the queue `q`."""
    line = {
        "step": step, "event": "added", "queue": "q", "sequence": sequence, "id": f"m{sequence}",
        "source": source, "enqueued_ms": 1, "priority": 4, "size_bytes": 80, "time_ms": 1, "by": by,
    }  # fmt: skip
    return json.dumps(line)


def done(step: int, by: str) -> str:
    """The line of a heartbeat."""
    return done_line(step, "heartbeat", event_tail(1, by))


@pytest.fixture(scope="module")
def recorded() -> RecordedHistory:
    return RecordedHistory(11, 1_000)


@pytest.fixture(scope="module")
def lines(spark: SparkSession, recorded: RecordedHistory) -> DataFrame:
    return to_lines(spark, recorded.batches).cache()


def test_the_contents_after_any_step_equal_those_of_the_core(
    lines: DataFrame, recorded: RecordedHistory
) -> None:
    moments = random.Random(5).sample(sorted(recorded.held), 30)
    found = read_contents(lines, [(queue, AtStep(0, step)) for queue, step in moments])
    for at, contents in zip(moments, found, strict=True):
        assert [each.answer() for each in contents] == [recorded.held[at]]
        assert contents[0].digest() == digest_answer(recorded.held[at])


def test_a_time_means_all_steps_up_to_it(lines: DataFrame, recorded: RecordedHistory) -> None:
    times = sorted(recorded.steps_until)[50::200]
    found = read_contents(lines, [("plain", AtTime(time_ms)) for time_ms in times])
    for time_ms, (contents,) in zip(times, found, strict=True):
        assert contents.answer() == recorded.held["plain", recorded.steps_until[time_ms]]


def test_an_offset_means_the_last_step_that_its_topic_caused(
    lines: DataFrame, recorded: RecordedHistory
) -> None:
    asked = [("plain", AtOffset("app.control", 0, number)) for number in range(20, 1_000, 90)]
    steps = resolve_moments(lines, asked, HOP)
    assert steps == [AtStep(0, recorded.steps[at.offset]) for _, at in asked]
    with pytest.raises(BadMoment, match="app.control/7/3"):
        resolve_moments(lines, [("plain", AtOffset("app.control", 7, 3))], HOP)


def test_a_record_without_a_line_resolves_to_the_record_before_it(spark: SparkSession) -> None:
    lines = to_lines(
        spark,
        [
            [added(1, 1, by="in/0/0"), added(2, 2, by="in/0/1"), done(2, "app.control/0/4")],
            [added(3, 3, by="in/0/2"), added(4, 4, by="app.hop/0/0", source="far/3/9")],
            [added(5, 5, by="app.hop/0/1", source="far/3/12")],
        ],
    )
    asked = {
        "app.control/0/5": 2, "in/0/2": 3, "in/0/99": 3, "far/3/11": 4, "far/3/12": 5,
        "app.hop/0/0": 4,
    }  # fmt: skip
    found = resolve_moments(lines, [("q", read_moment(text)) for text in asked], HOP)
    unread = [text in ("app.control/0/5", "in/0/99") for text in asked]
    assert found == [AtStep(0, *each) for each in zip(asked.values(), unread, strict=True)]
    assert [LastLine(9, 0).is_before(0, moment) for moment in found] == unread
    with pytest.raises(BadMoment, match="far/3/8"):
        resolve_moments(lines, [("q", read_moment("far/3/8"))], HOP)


def test_repeated_lines_change_nothing(spark: SparkSession, recorded: RecordedHistory) -> None:
    """Spark's Kafka sink may write part of a micro-batch, crash, and write all of it again."""
    batches = []
    for start in range(0, 400, 100):
        whole = recorded.batches[start : start + 100]
        batches += [*whole[:60], [*whole[60][:1]], *whole]
    lines = to_lines(spark, [batch for batch in batches if batch])
    step = recorded.steps[399]
    found = read_contents(lines, [(queue, AtStep(0, step)) for queue in QUEUES])
    assert [one.answer() for (one,) in found] == [recorded.held[queue, step] for queue in QUEUES]


def test_a_history_without_its_first_messages_is_refused(spark: SparkSession) -> None:
    lines = to_lines(spark, [[added(8, 2), added(9, 3)]])
    with pytest.raises(TruncatedHistory, match="2 of its 3"):
        read_contents(lines, [("q", AtStep(0, 9))])
    with pytest.raises(UnknownQueue, match="'nobody'"):
        read_contents(lines, [("nobody", AtStep(0, 9))])


def test_a_diff_lists_the_change_of_each_message(
    lines: DataFrame, recorded: RecordedHistory
) -> None:
    queue, first, second = "mixed", recorded.steps[700], recorded.steps[760]
    (diff,) = read_diff(lines, queue, AtStep(0, first), AtStep(0, second), 10_000)
    before, after = (recorded.states(queue, step) for step in (first, second))
    kinds: dict[str, set[str]] = {"came": set(), "left": set(), "changed": set(), "passed": set()}
    for change in diff.changes:
        kinds[change.kind].add(change.id)
        assert change.before == before.get(change.id, change.before)
        assert change.after == after.get(change.id, change.after)
    assert kinds["came"] == after.keys() - before.keys()
    assert kinds["left"] == before.keys() - after.keys()
    assert kinds["changed"] >= {m for m in before.keys() & after.keys() if before[m] != after[m]}
    assert not kinds["passed"] & (before.keys() | after.keys())
    assert sum(diff.counts.values()) == len(diff.changes)
    assert diff.unchanged + len(kinds["changed"]) == len(before.keys() & after.keys())
    evicted = (
        recorded.held[queue, second]["counts"]["evicted"]
        - recorded.held[queue, first]["counts"]["evicted"]
    )
    assert evicted == sum(n for (_, state, _), n in diff.counts.items() if state == "evicted") > 0


def test_a_diff_backwards_or_across_partitions_is_refused(lines: DataFrame) -> None:
    with pytest.raises(WrongOrder, match="swap them"):
        read_diff(lines, "plain", AtStep(0, 9), AtStep(0, 8), 10)
    with pytest.raises(WrongOrder, match="different partitions"):
        read_diff(lines, "plain", AtStep(0, 9), AtStep(1, 10), 10)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0/1234", AtStep(0, 1234)),
        ("orders.eu/3/12", AtOffset("orders.eu", 3, 12)),
        ("1970-01-01T00:00:01.5", AtTime(1_500)),
        ("1970-01-01T01:00:01+01:00", AtTime(1_000)),
    ],
)
def test_the_form_of_a_moment_decides_its_kind(text: str, moment: Moment) -> None:
    assert read_moment(text) == moment


HUGE = "9" * 19
"""More than a column of Spark holds."""


@pytest.mark.parametrize(
    "text",
    ["1700000000000", "noon", "0/x", "/0/1", "a/b/c", "a/0/1/2", "", f"0/{HUGE}", f"a/{HUGE}/0"],
)
def test_an_invalid_moment_is_refused(text: str) -> None:
    with pytest.raises(BadMoment, match="is not a|has no unit"):
        read_moment(text)


def request(**options: Any) -> RewindRequest:
    return read_options(RewindOptions(["q"], limit=5, **options))


def test_ring_sizes_and_settings_are_variants() -> None:
    asked = request(ring_size="10,-1", settings=["evict=head", "max_attempts=3"])
    changes = {"evict": "head", "max_attempts": 3}
    assert asked.variants == {
        "ring_size=10, evict=head, max_attempts=3": {**changes, "ring_size": 10},
        "ring_size=-1, evict=head, max_attempts=3": {**changes, "ring_size": -1},
    }
    assert request(settings=["evict=head"]).variants == {"evict=head": {"evict": "head"}}
    assert request(step="0/7", to="0/9").moments == [AtStep(0, 7), AtStep(0, 9)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "nothing to do"),
        ({"step": "0/1", "at": "2026-01-31T17:05"}, "only one of"),
        ({"to": "0/1"}, "second moment"),
        ({"settings": ["evict"]}, "name=value"),
        ({"ring_size": "10,many"}, "whole numbers"),
        ({"ring_size": "0"}, "1 or more"),
        ({"settings": ["window=3"]}, "consumers"),
        ({"settings": ["nonsense=3"]}, "no such queue setting"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(RingfaustError, match=says):
        request(**options)


def test_a_replay_begins_with_what_was_in_effect_when_the_queue_was_first_used(
    spark: SparkSession,
) -> None:
    rows = [
        (0, 1, "added", "a", None), (0, 2, "applied", "", 1), (0, 3, "added", "b", None),
        (0, 4, "applied", "", 2), (0, 5, "added", "b", None), (0, 6, "added", "c", None),
        (1, 7, "applied", "", 3),
    ]  # fmt: skip
    columns = "partition int, step long, event string, queue string, revision long"
    lines = spark.createDataFrame(rows, columns)
    catalogs = {revision: Catalog({}, {}) for revision in range(4)}
    for queue, revision in {"a": 0, "b": 1, "c": 2, "none": 0}.items():
        assert first_catalog(lines, queue, catalogs) is catalogs[revision]
