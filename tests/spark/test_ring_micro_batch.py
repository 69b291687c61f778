"""A micro-batch of one partition, without Spark: the order of records, and repeated batches."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.processor.processor import ProcessorConfig
from ringfaust.protocol.records import InRecord
from ringfaust.protocol.routes import Route
from ringfaust.spark.ring.checkpoint import needed_starts
from ringfaust.spark.ring.micro_batch import BatchRules, JobStart, MicroBatch, OperatorConfig
from ringfaust.spark.ring.operator import IN_COLUMNS, read_records
from ringfaust.spark.ring.pages import PagedMap
from tests.spark.test_ring_pages import MemoryPages

Row = tuple[Any, ...]


def config(
    log_is_clock: bool = False, spread: Iterable[str] = (), starts: Sequence[JobStart] = ()
) -> OperatorConfig:
    return OperatorConfig(
        rules=BatchRules(
            processor_config=ProcessorConfig(
                control_topic="control",
                repartition_topic="",
                routes=[Route("sent", "{key}"), Route("far", "{key}")],
                max_record_bytes=10_000,
                log_is_clock=log_is_clock,
                spread=frozenset(spread),
            ),
            catalog=Catalog({"a": {"ring_size": 3}, "b": {"ring_size": 2}}, {}),
        ),
        cache_bytes=1 << 20,
        starts=starts,
    )


def sent(offset: int, queue: str, at_ms: int = 0, topic: str = "sent", partition: int = 0) -> Row:
    return (topic, partition, offset, at_ms, 0, queue.encode(), b"%d" % offset, None)


def control(offset: int, at_ms: int = 0, **said: object) -> Row:
    return ("control", 0, offset, at_ms, 0, b"", json.dumps({"v": 1, **said}).encode(), None)


def records(rows: Iterable[Row]) -> list[InRecord]:
    return read_records([pd.DataFrame(list(rows), columns=list(IN_COLUMNS), dtype=object)])


def go(
    pages: MemoryPages, rows: Iterable[Row], now_ms: int, config: OperatorConfig, batch: int = 0
) -> tuple[list[Any], int | None]:
    """Run a micro-batch: its output records, and when time advances next."""
    micro_batch = MicroBatch(config, 0, pages, now_ms, batch=batch, new_buffer=list)
    taken = records(rows) if (rows := list(rows)) else []
    out = [
        (role.value, *record)
        for outputs in micro_batch.run(taken)
        for (role, _), written in outputs.items()
        for record in written
    ]
    return out, micro_batch.close()


def lines(out: Iterable[Any]) -> list[dict[str, Any]]:
    texts = [value.decode() for topic, _, value, *_ in out if topic == "events"]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def history(seed: int, count: int) -> list[Row]:
    chance = random.Random(seed)
    rows = []
    for offset in range(count):
        if chance.random() < 0.2:
            said = {"consumer": "c", "queue": chance.choice("ab"), "credit": 1}
            kind = chance.choice(["attach", "credit", "detach"])
            rows.append(control(offset, offset, type=kind, **said))
        else:
            rows.append(sent(offset, chance.choice("ab"), offset))
    return rows


# --- the order of records -------------------------------------------------------------------------


def test_records_are_processed_in_one_order_whatever_order_spark_delivers() -> None:
    rows = history(1, 300)
    wanted = records(rows)
    for seed in range(5):
        shuffled = list(rows)
        random.Random(seed).shuffle(shuffled)
        assert records(shuffled) == wanted


def test_offsets_decide_within_a_log_and_timestamps_between_logs() -> None:
    rows = [sent(0, "a", 50), sent(1, "a", 10), sent(2, "a", 60), control(0, 55), control(1, 5)]
    assert [(r.topic, r.offset) for r in records(rows)] == [
        ("sent", 0), ("sent", 1), ("control", 0), ("control", 1), ("sent", 2),
    ]  # fmt: skip


def test_each_partition_of_a_repartitioned_topic_is_a_log() -> None:
    rows = [
        sent(7, "a", 20, "far", 1), sent(0, "a", 10, "far", 2), sent(8, "a", 5, "far", 1),
    ]  # fmt: skip
    taken = records(rows)
    assert [(r.partition, r.offset) for r in taken] == [(2, 0), (1, 7), (1, 8)]
    out, _ = go(MemoryPages(), rows, 100, config(spread=["far"]))
    assert [line["by"] for line in lines(out)] == ["far/2/0", "far/1/7", "far/1/8"]


def test_headers_are_restored_as_pairs() -> None:
    (record,) = records([(*sent(0, "a")[:7], [b"x", b"1", b"y", None])])
    assert record.headers == (("x", b"1"), ("y", None))


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_output_does_not_depend_on_how_a_log_is_cut_into_batches(seed: int) -> None:
    """Except for the packing of lines into records, and the time of each batch."""
    rows = history(seed, 400)
    whole, _ = go(MemoryPages(), rows, 1000, config())
    pages, parts = MemoryPages(), []
    cuts = sorted(random.Random(seed).sample(range(400), 7))
    for first, end in pairwise([0, *cuts, 400]):
        out, _ = go(pages, rows[first:end], 1000, config())
        parts += out
    assert lines(parts) == lines(whole)
    for topic in ("dispatched", "evicted"):
        assert [r for r in parts if r[0] == topic] == [r for r in whole if r[0] == topic]
    assert any(row[0] == "evicted" for row in whole)


def test_a_repeated_batch_produces_the_same_output_and_state() -> None:
    rows = history(3, 300)
    pages = MemoryPages()
    go(pages, rows[:200], 1000, config())
    first, again = MemoryPages(), MemoryPages()
    first.update(pages)
    again.update(pages)
    shuffled = list(rows[200:])
    random.Random(9).shuffle(shuffled)
    assert go(first, rows[200:], 2000, config()) == go(again, shuffled, 2000, config())
    assert first == again


def test_records_that_were_processed_before_have_no_effect() -> None:
    rows = history(4, 100)
    pages = MemoryPages()
    go(pages, rows, 1000, config())
    assert go(pages, rows, 1000, config())[0] == []


# --- time -----------------------------------------------------------------------------------------

ATTACH = control(0, type="attach", consumer="c", queue="a", credit=1)


def settled(out: Iterable[Any]) -> list[str]:
    return [line["event"] for line in lines(out) if line["event"] in ("acked", "returned")]


def test_time_does_not_advance_until_the_records_present_at_the_start_are_processed() -> None:
    pages = MemoryPages()
    _, wake_ms = go(pages, [ATTACH, sent(0, "a")], 1_000, config())
    assert wake_ms is not None
    start = JobStart(ends={"control": {0: 2}})
    late = wake_ms + 1
    out, again_ms = go(pages, [], late, config(starts=[start]))
    assert out == [] and again_ms == wake_ms, "the unread records may contain the ack"
    ack = control(1, type="ack", consumer="c", queue="a", message="sent/0/0")
    out, _ = go(pages, [ack], late, config(starts=[start]))
    assert settled(out) == ["acked"]


def test_time_advances_once_everything_is_processed() -> None:
    pages = MemoryPages()
    _, wake_ms = go(pages, [ATTACH, sent(0, "a")], 1_000, config())
    assert wake_ms is not None
    start = JobStart(ends={"control": {0: 1}, "sent": {0: 1}})
    out, _ = go(pages, [], wake_ms, config(starts=[start]))
    assert settled(out) == ["returned"]


def test_a_batch_repeated_by_a_later_run_uses_the_start_of_the_first_run() -> None:
    starts = [
        JobStart(ends={"control": {0: 1}}, first_batch=1),
        JobStart(ends={"control": {0: 9}}, first_batch=3),
    ]
    assert config(starts=starts).planner(2) is starts[0]
    assert config(starts=starts).planner(3) is starts[1]
    assert config(starts=starts).planner(0) is None


def test_a_repeated_batch_keeps_the_configuration_of_the_run_that_began_it() -> None:
    """Part of its outputs may be written: another ring size would contradict them."""
    old = config()
    before = JobStart(ends={}, rules=old.rules)
    rules = replace(old.rules, catalog=Catalog({"a": {"ring_size": 9}, "b": {}}, {}))
    new = replace(old, rules=rules, starts=[before, JobStart(ends={}, first_batch=5)])
    rows = [sent(offset, "a") for offset in range(8)]

    def evictions(given: OperatorConfig, batch: int) -> int:
        out, _ = go(MemoryPages(), rows, 1_000, given, batch)
        return sum(topic == "evicted" for topic, *_ in out)

    assert evictions(old, 4) == evictions(new, 4) == 5
    assert evictions(new, 5) == 0


# --- starts ---------------------------------------------------------------------------------------

BEGIN = control(0, type="begin", xid="x")


def decided(
    pages: MemoryPages, rows: Iterable[Row], starts: Sequence[JobStart], batch: int
) -> list[str]:
    out, _ = go(pages, rows, 1_000 + batch, config(starts=starts), batch)
    return [line["by"] for line in lines(out) if line["event"] == "decided"]


def start_at(batch: int) -> JobStart:
    return JobStart(ends={}, first_batch=batch)


def test_the_first_micro_batch_after_a_start_rolls_back_unprepared_transactions() -> None:
    pages = MemoryPages()
    starts = [start_at(0)]
    assert decided(pages, [BEGIN], starts, 0) == []
    assert decided(pages, [sent(0, "a")], starts, 1) == [], "the same start"
    starts.append(start_at(2))
    assert decided(pages, [sent(1, "a")], starts, 2) == ["start"]
    assert decided(pages, [control(1, type="begin", xid="y")], starts, 3) == []
    assert decided(pages, [sent(2, "a")], starts, 4) == []


def test_a_batch_repeated_by_a_later_run_does_not_roll_back() -> None:
    pages = MemoryPages()
    assert decided(pages, [BEGIN], [start_at(0)], 0) == []
    # Batch 1 was planned when the job died. The next run begins with 2 but repeats 1 first.
    later = [start_at(0), start_at(2)]
    assert decided(pages, [sent(0, "a")], later, 1) == []
    assert decided(pages, [sent(1, "a")], later, 2) == ["start"]


# --- paused queues -----------------------------------------------------------------------------


def test_records_for_a_paused_queue_wait_in_the_state() -> None:
    pages = MemoryPages()
    pause = control(0, type="pause", queue="a", what="pulling")
    resume = control(1, type="resume", queue="a", what="pulling")
    assert "a" in [line.get("queue") for line in lines(go(pages, [pause], 10, config())[0])]
    rows = [sent(n, "ab"[n % 2], 20 + n, "far", n % 3) for n in range(6)]
    out, _ = go(pages, rows, 30, config(spread=["far"]))
    assert lines(out) == [], "the topic's later records wait too"
    out, _ = go(pages, [sent(6, "b", 40, "far", 0)], 50, config(spread=["far"]))
    assert lines(out) == []
    out, _ = go(pages, [resume, sent(7, "a", 41, "far", 1)], 60, config(spread=["far"]))
    added = [line["by"] for line in lines(out) if line["event"] == "added"]
    assert added == [f"far/{n % 3}/{n}" for n in range(6)] + ["far/0/6", "far/1/7"]
    assert not [key for key, _ in _rows(pages) if key.startswith(b"\xff") or b"waiting" in key]


def _rows(pages: MemoryPages) -> list[tuple[bytes, bytes]]:
    return list(PagedMap(pages).items_from(b""))


def test_the_plan_of_a_batch_is_kept_until_it_is_committed() -> None:
    """Five starts were kept: after six crashes within a batch, its plan was forgotten."""
    starts: list[dict[str, Any]] = []
    for number in range(50):  # run 7 plans batch 7; all later ones crash within that batch
        starts = needed_starts(starts, unfinished=min(number, 7))
        starts.append({"first_batch": number if number <= 7 else 8})
        assert len(starts) <= 6
        known = [JobStart(ends={}, first_batch=start["first_batch"]) for start in starts]
        operator_config = config(starts=known)
        if number >= 7:
            assert planned_by(operator_config, 7) == 7
            assert planned_by(operator_config, 8) == (8 if number > 7 else 7)


def planned_by(operator_config: OperatorConfig, batch: int) -> int:
    planner = operator_config.planner(batch)
    assert planner is not None
    return planner.first_batch


def test_a_start_is_forgotten_once_its_batches_are_committed() -> None:
    starts: list[dict[str, Any]] = []
    for number in range(50):
        starts = needed_starts(starts, unfinished=number)
        starts.append({"first_batch": number})
    assert [start["first_batch"] for start in starts] == [44, 45, 46, 47, 48, 49]
