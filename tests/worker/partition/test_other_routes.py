"""A partition uses the routes of its own configuration, from one position on (R128)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from ringfaust.core.catalog import Configuration, catalog_of
from ringfaust.core.state import State
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.protocol.route_changes import feeds_of
from ringfaust.protocol.stored_rows import Feeds
from ringfaust.worker.partition.route_changes import QueuesMoved
from ringfaust.worker.partition.work import PartitionWork
from tests.records import new_record

PARTITIONS = 4
KEY = next(k for k in "abcdefgh" if partition_of(k, 4) != partition_of(f"keyed.{k}", 4))
NUMBER = partition_of(KEY, PARTITIONS)
HOME = partition_of(f"keyed.{KEY}", PARTITIONS)
IN = {"topic": "in", "queue": "keyed.{key}"}
NEW = {"topic": "new", "queue": "late.{key}"}
MOVES = {"topic": "far", "queue": "keyed.{header:x}"}
OURS = {"control", "hop"}


def document(*routes: dict[str, str]) -> dict[str, Any]:
    """As the log has it."""
    return {
        "routes": [{**each, "hop": "auto"} for each in routes],
        "queues": {"keyed.*": {}, "late.*": {}}, "addresses": {}, "settings": {},
    }  # fmt: skip


class Partition:
    """The work of a partition, on a store that outlives it."""

    def __init__(self, *file: dict[str, str], newest: Configuration | None = None) -> None:
        self.store, self.file = MemoryKeyValue(), document(*file)
        self.offsets: dict[str, int] = {}
        self.told: list[tuple[int, Feeds]] = []
        self.newest = newest
        """What was applied last when the worker started."""
        self.open()

    def open(self, *, given: frozenset[str] = frozenset({*OURS, "in", "new"})) -> None:
        config = ProcessorConfig(
            "control", "hop", (), 1_000, log_is_clock=False, newest=self.newest
        )
        catalog = catalog_of(self.file)
        context: Any = SimpleNamespace(
            topics={Role.CONTROL: "control", Role.HOP: "hop", Role.CHANGELOG: "log"},
            partitions=PARTITIONS, feeds=feeds_of(self.file, PARTITIONS), is_metered=False,
            processor_config=config, clock_skew_max_ms=1_000, cache_bytes=lambda: 1 << 20,
            took_up=lambda *newer: self.told.append(newer),
            clock=SimpleNamespace(monotonic_s=lambda: 0.0, wall_ms=lambda: 1_000, is_right=True),
            new_processor=lambda store, positions, new: Processor(
                config, State(ByteStore(store), catalog), positions, new
            ),
        )  # fmt: skip
        self.work = PartitionWork(NUMBER, given, context)
        store: Any = self.store
        self.work.restore(store, {}, lambda: RecordBatches(1 << 20))
        self.commit()

    def record(self, topic: str, value: bytes = b"", **headers: str) -> FetchedRecord:
        offset = self.offsets.get(topic, 0)
        self.offsets[topic] = offset + 1
        pairs = [(f"ringfaust-{name}", text.encode()) for name, text in headers.items()]
        return new_record(topic, offset, value, pairs, KEY.encode())

    def say(self, **command: Any) -> FetchedRecord:
        return self.record("control", json.dumps(command).encode())

    def apply(self, revision: int, *routes: dict[str, str]) -> FetchedRecord:
        return self.say(type="apply", revision=revision, configuration=document(*routes))

    def take(self, *records: FetchedRecord) -> list[FetchedRecord]:
        """Decide one batch. Returns what did not fit into it."""
        left = iter(records)
        self.work.decide(left, 1_000)
        self.commit()
        return [*left]

    def commit(self) -> None:
        pending = self.work.take_commit(1_000)
        if pending is not None:
            self.store.apply(pending.writes.store)
            self.work.committed(pending, 0.0)

    @property
    def reads(self) -> set[str]:
        return {tp.topic for tp in self.work.tps}

    def added(self, queue: str) -> int:
        found = self.work.state.queue(queue)
        return 0 if found is None else found.counts.added


def test_a_batch_ends_where_routes_may_change_and_the_next_has_the_new_ones() -> None:
    partition = Partition(IN)
    assert partition.reads == {*OURS, "in"}
    assert not partition.work.has_other_inputs
    first, behind = partition.record("in"), partition.record("in")
    assert partition.take(first, partition.apply(1, NEW), behind) == [behind]
    assert partition.added(f"keyed.{KEY}") == 1
    assert partition.work.has_other_inputs
    assert partition.work.poll_timeout_s() == 0.0
    assert partition.work.take_up_inputs()
    assert partition.told == [(1, feeds_of(document(NEW), PARTITIONS))]
    assert partition.reads == {*OURS, "new"}
    assert not partition.work.has_other_inputs
    partition.take(partition.record("new"))
    assert partition.added(f"late.{KEY}") == 1
    assert partition.work.positions["in"] == 1, "it continues there if the route is added again"
    assert partition.work.tps == {TP(topic, NUMBER) for topic in partition.reads}


def test_settings_alone_let_it_read_on() -> None:
    partition = Partition(IN)
    partition.take(partition.apply(1, IN))
    assert partition.work.has_other_inputs
    assert not partition.work.take_up_inputs()
    assert not partition.work.has_other_inputs


def test_its_own_configuration_counts_whatever_the_worker_has_in_its_file() -> None:
    partition = Partition(IN)
    partition.take(partition.apply(1, NEW))
    partition.open()
    assert partition.reads == {*OURS, "new"}


def test_it_reads_what_the_group_has_given_it() -> None:
    partition = Partition(IN, NEW)
    partition.work.give(frozenset({*OURS, "new", "unknown"}))
    assert partition.work.has_other_inputs
    assert partition.work.take_up_inputs()
    assert partition.reads == {*OURS, "new"}


def test_routes_that_would_move_its_messages_let_it_read_commands_until_these_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R113: `apply` has asked before, but a queue may get its first message in between."""
    partition = Partition(IN)
    partition.take(partition.record("in"), partition.apply(1, MOVES))
    assert partition.work.take_up_inputs()
    assert partition.reads == {"control"}
    assert f"'keyed.{KEY}' (1 messages, to partition {HOME})" in caplog.text
    assert "Consume, move or purge" in partition.work.blocked
    assert partition.work.blocked in caplog.text
    partition.open()
    assert partition.reads == {"control"}
    partition.take(partition.say(type="attach", queue=f"keyed.{KEY}", consumer="c", credit=0))
    assert not partition.work.has_other_inputs
    partition.take(partition.say(type="purge", queue=f"keyed.{KEY}"))
    assert partition.work.has_other_inputs
    assert partition.work.take_up_inputs()
    assert partition.reads == OURS
    assert partition.work.state.queue_rows.get(f"keyed.{KEY}") is None, "it is at home elsewhere"


def test_the_earlier_routes_free_it() -> None:
    partition = Partition(IN)
    partition.take(partition.record("in"), partition.apply(1, MOVES))
    partition.work.take_up_inputs()
    partition.take(partition.apply(2, IN))
    assert partition.work.take_up_inputs()
    assert partition.reads == {*OURS, "in"}
    partition.take(partition.record("in"))
    assert partition.added(f"keyed.{KEY}") == 2


def test_files_that_would_move_its_messages_are_refused() -> None:
    partition = Partition(IN)
    partition.take(partition.record("in"))
    partition.file = document(MOVES)
    with pytest.raises(QueuesMoved, match="Nothing was changed"):
        partition.open()


def test_a_partition_that_is_added_begins_with_what_was_applied_last() -> None:
    """It would wait for ever for the revision that has sent the records of the hop topic."""
    revision_3 = Configuration(3, document(NEW), "ann", "routes", applied_ms=900)
    partition = Partition(IN, newest=revision_3)
    assert partition.reads == {*OURS, "new"}
    assert partition.told == [(3, feeds_of(document(NEW), PARTITIONS))]
    partition.take(partition.record("hop", queue="late.x", revision="3"))
    assert partition.work.paused_topics == {}
    assert partition.added("late.x") == 1
    partition.newest = revision_3._replace(revision=4)
    partition.open()
    assert partition.work.state.configuration == revision_3, "revision 4 is in its control topic"


def test_a_partition_keeps_what_it_has_used_until_its_log_has_another() -> None:
    partition = Partition(IN)
    partition.take(partition.record("in"))
    partition.newest = Configuration(1, document(NEW))
    partition.open()
    assert partition.reads == {*OURS, "in"}
    partition.take(partition.apply(1, NEW))
    assert partition.work.take_up_inputs()
    assert partition.reads == {*OURS, "new"}


def test_the_revision_that_it_began_with_may_be_in_its_log_too() -> None:
    """`apply` may have written it before the worker started."""
    revision_3 = Configuration(3, document(NEW), "ann", applied_ms=900)
    partition = Partition(IN, newest=revision_3)
    partition.take(partition.apply(3, NEW))
    assert partition.work.state.configuration == revision_3
    assert not partition.work.has_other_inputs
    partition.take(partition.apply(4, IN))
    assert partition.work.take_up_inputs()
    assert partition.reads == {*OURS, "in"}
