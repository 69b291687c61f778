"""A micro-batch of one partition, without Spark: the order of records, and what a retry gives."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.processor.processor import ProcessorConfig
from ringfaust.protocol.records import InRecord, Role
from ringfaust.protocol.routes import Route
from ringfaust.spark.columns import IN_COLUMNS, read_records, write_frames
from ringfaust.spark.ring.micro_batch import Plan, Start, Turn
from tests.spark.test_columns import headers_of
from tests.spark.test_leaves import Shelf

TOPICS = {role: role.value for role in Role}
Row = tuple[Any, ...]


def plan(
    log_is_clock: bool = False, spread: Iterable[str] = (), starts: Sequence[Start] = ()
) -> Plan:
    return Plan(
        processor_config=ProcessorConfig(
            control_topic="control",
            hop_topic="",
            routes=[Route("sent", "{key}"), Route("far", "{key}")],
            max_record_bytes=10_000,
            log_is_clock=log_is_clock,
            spread=frozenset(spread),
        ),
        catalog=Catalog({"a": {"ring_size": 3}, "b": {"ring_size": 2}}, {}),
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
    shelf: Shelf, rows: Iterable[Row], now_ms: int, plan: Plan, batch: int = 0
) -> tuple[list[Any], int | None]:
    """What comes out, by topic; and when time acts next."""
    turn = Turn(plan, 0, shelf, now_ms, batch)
    taken = records(rows) if (rows := list(rows)) else []
    out = []
    for outputs in turn.run(taken):
        for frame in write_frames(outputs, TOPICS, 0):
            for row in frame.itertuples(index=False):
                out.append((row.topic, row.key, row.value, headers_of(row)))
    return out, turn.close()


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


def test_whatever_order_spark_gives_the_order_is_one() -> None:
    rows = history(1, 300)
    wanted = records(rows)
    for seed in range(5):
        shuffled = list(rows)
        random.Random(seed).shuffle(shuffled)
        assert records(shuffled) == wanted


def test_offsets_rule_within_a_log_and_time_between_logs() -> None:
    rows = [sent(0, "a", 50), sent(1, "a", 10), sent(2, "a", 60), control(0, 55), control(1, 5)]
    assert [(r.topic, r.offset) for r in records(rows)] == [
        ("sent", 0), ("sent", 1), ("control", 0), ("control", 1), ("sent", 2),
    ]  # fmt: skip


def test_partitions_of_a_topic_that_hops_are_logs_of_their_own() -> None:
    rows = [
        sent(7, "a", 20, "far", 1), sent(0, "a", 10, "far", 2), sent(8, "a", 5, "far", 1),
    ]  # fmt: skip
    taken = records(rows)
    assert [(r.partition, r.offset) for r in taken] == [(2, 0), (1, 7), (1, 8)]
    out, _ = go(Shelf(), rows, 100, plan(spread=["far"]))
    assert [line["by"] for line in lines(out)] == ["far/2/0", "far/1/7", "far/1/8"]


def test_headers_are_pairs_again() -> None:
    (record,) = records([(*sent(0, "a")[:7], [b"x", b"1", b"y", None])])
    assert record.headers == (("x", b"1"), ("y", None))


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_however_a_log_is_cut_the_same_comes_out(seed: int) -> None:
    """All but how lines are packed into records, and the time of each."""
    rows = history(seed, 400)
    whole, _ = go(Shelf(), rows, 1000, plan())
    shelf, parts = Shelf(), []
    cuts = sorted(random.Random(seed).sample(range(400), 7))
    for first, end in pairwise([0, *cuts, 400]):
        out, _ = go(shelf, rows[first:end], 1000, plan())
        parts += out
    assert lines(parts) == lines(whole)
    for topic in ("dispatched", "evicted"):
        assert [r for r in parts if r[0] == topic] == [r for r in whole if r[0] == topic]
    assert any(row[0] == "evicted" for row in whole)


def test_a_batch_that_is_done_again_comes_out_the_same() -> None:
    rows = history(3, 300)
    shelf = Shelf()
    go(shelf, rows[:200], 1000, plan())
    first, again = Shelf(), Shelf()
    first.update(shelf)
    again.update(shelf)
    shuffled = list(rows[200:])
    random.Random(9).shuffle(shuffled)
    assert go(first, rows[200:], 2000, plan()) == go(again, shuffled, 2000, plan())
    assert first == again


def test_records_that_were_taken_do_nothing_again() -> None:
    rows = history(4, 100)
    shelf = Shelf()
    go(shelf, rows, 1000, plan())
    assert go(shelf, rows, 1000, plan())[0] == []


# --- time -----------------------------------------------------------------------------------------

ATTACH = control(0, type="attach", consumer="c", queue="a", credit=1)


def settled(out: Iterable[Any]) -> list[str]:
    return [line["event"] for line in lines(out) if line["event"] in ("acked", "returned")]


def test_time_waits_until_the_log_that_was_there_has_been_read() -> None:
    shelf = Shelf()
    _, wake_ms = go(shelf, [ATTACH, sent(0, "a")], 1_000, plan())
    assert wake_ms is not None
    start = Start(started_ms=wake_ms, ends={"control": {0: 2}})
    late = wake_ms + 1
    out, again_ms = go(shelf, [], late, plan(starts=[start]))
    assert out == [] and again_ms == wake_ms, "the ack may be in what is not read yet"
    ack = control(1, type="ack", consumer="c", queue="a", message="sent/0/0")
    out, _ = go(shelf, [ack], late, plan(starts=[start]))
    assert settled(out) == ["acked"]


def test_with_all_read_time_acts() -> None:
    shelf = Shelf()
    _, wake_ms = go(shelf, [ATTACH, sent(0, "a")], 1_000, plan())
    assert wake_ms is not None
    start = Start(started_ms=wake_ms, ends={"control": {0: 1}, "sent": {0: 1}})
    out, _ = go(shelf, [], wake_ms, plan(starts=[start]))
    assert settled(out) == ["returned"]


def test_a_batch_that_is_done_again_by_a_later_run_knows_what_the_first_knew() -> None:
    starts = [
        Start(started_ms=100, ends={"control": {0: 1}}),
        Start(started_ms=200, ends={"control": {0: 9}}),
    ]
    assert plan(starts=starts).ends(0, 150) == {"control": 1}
    assert plan(starts=starts).ends(0, 200) == {"control": 9}
    assert plan(starts=starts).ends(0, 50) == {}


# --- starts ---------------------------------------------------------------------------------------

BEGIN = control(0, type="begin", xid="x")


def decided(shelf: Shelf, rows: Iterable[Row], starts: Sequence[Start], batch: int) -> list[str]:
    out, _ = go(shelf, rows, 1_000 + batch, plan(starts=starts), batch)
    return [line["by"] for line in lines(out) if line["event"] == "decided"]


def start_at(batch: int) -> Start:
    return Start(started_ms=1, ends={}, first_batch=batch)


def test_the_first_turn_of_a_start_rolls_back_what_was_not_prepared() -> None:
    shelf = Shelf()
    starts = [start_at(0)]
    assert decided(shelf, [BEGIN], starts, 0) == []
    assert decided(shelf, [sent(0, "a")], starts, 1) == [], "the same start"
    starts.append(start_at(2))
    assert decided(shelf, [sent(1, "a")], starts, 2) == ["start"]
    assert decided(shelf, [control(1, type="begin", xid="y")], starts, 3) == []
    assert decided(shelf, [sent(2, "a")], starts, 4) == []


def test_a_batch_that_is_done_again_by_a_later_run_is_as_it_was() -> None:
    shelf = Shelf()
    assert decided(shelf, [BEGIN], [start_at(0)], 0) == []
    # Batch 1 was planned when the job died; the next run begins with 2, but does 1 again first.
    later = [start_at(0), start_at(2)]
    assert decided(shelf, [sent(0, "a")], later, 1) == []
    assert decided(shelf, [sent(1, "a")], later, 2) == ["start"]


# --- queues that are not pulled -------------------------------------------------------------------


def test_what_is_for_a_paused_queue_waits_in_the_state() -> None:
    shelf = Shelf()
    pause = control(0, type="pause", queue="a", what="pulling")
    resume = control(1, type="resume", queue="a", what="pulling")
    assert "a" in [line.get("queue") for line in lines(go(shelf, [pause], 10, plan())[0])]
    rows = [sent(n, "ab"[n % 2], 20 + n, "far", n % 3) for n in range(6)]
    out, _ = go(shelf, rows, 30, plan(spread=["far"]))
    assert lines(out) == [], "in one topic all that stands behind waits too"
    out, _ = go(shelf, [sent(6, "b", 40, "far", 0)], 50, plan(spread=["far"]))
    assert lines(out) == []
    out, _ = go(shelf, [resume, sent(7, "a", 41, "far", 1)], 60, plan(spread=["far"]))
    added = [line["by"] for line in lines(out) if line["event"] == "added"]
    assert added == [f"far/{n % 3}/{n}" for n in range(6)] + ["far/0/6", "far/1/7"]
    assert not [key for key, _ in _rows(shelf) if key.startswith(b"\xff") or b"waiting" in key]


def _rows(shelf: Shelf) -> list[tuple[bytes, bytes]]:
    from ringfaust.spark.ring.pages import Leaves  # noqa: PLC0415

    return list(Leaves(shelf).items_from(b""))
