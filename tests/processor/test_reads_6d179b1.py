"""State that commit 6d179b1 wrote is read, and continued, as that commit does it."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from rocksdict import Cache

from ringfaust.core import levels
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import XidRow
from ringfaust.core.queue import QueueRow
from ringfaust.core.state import State
from ringfaust.core.table import Kind
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, KeyValue, MemoryKeyValue
from ringfaust.protocol.records import OutRecord
from ringfaust.protocol.routes import Route
from ringfaust.protocol.stored_rows import POSITIONS_KEY, read_positions, read_value
from ringfaust.worker.store.rocks import RocksStore
from tests.fixtures.written import (
    FOLDER,
    comparable,
    input_record,
    plain,
    plain_rows,
    read_changelog,
    read_lines,
)

CONTINUED = json.loads((FOLDER / "continued.json").read_text())
CONFIG = CONTINUED["config"]


class Writable(KeyValue, Protocol):
    """A store with an `apply`."""

    def apply(self, writes: Any, /) -> None: ...


class Disk:
    """A `RocksStore` whose `apply` counts the changelog offset itself."""

    def __init__(self, store: RocksStore) -> None:
        self._store = store
        self.get, self.items_from = store.get, store.items_from

    def apply(self, writes: Any, /) -> None:
        offset, at_ms = self._store.applied
        self._store.apply(writes, offset + len(writes), at_ms)


@contextmanager
def open_source(source: str, folder: Path) -> Iterator[Writable]:
    """The changelog read into an empty store, or the RocksDB folder itself."""
    if source == "changelog":
        memory = MemoryKeyValue()
        memory.apply(read_changelog())
        yield memory
        return
    with tarfile.open(FOLDER / "rocksdb.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    store = RocksStore(folder / "partition-0", Cache(1 << 20))
    try:
        assert store.applied[0] == len(read_changelog())
        yield Disk(store)
    finally:
        store.close()


def open_processor(store: KeyValue) -> Processor[list[OutRecord]]:
    config = ProcessorConfig(
        control_topic=CONFIG["control_topic"],
        repartition_topic=CONFIG["hop_topic"],
        routes=[Route(topic, queue) for topic, queue in CONFIG["routes"]],
        max_record_bytes=100_000,
        log_is_clock=False,
    )
    catalog = Catalog(CONFIG["queues"], CONFIG["settings"], CONFIG["addresses"])
    state = State(ByteStore(store), catalog)
    return Processor(config, state, read_positions(store.get(POSITIONS_KEY)), list)


def play(processor: Processor[list[OutRecord]], batch: dict[str, Any]) -> None:
    """One batch, as a host does it."""
    if batch.get("start"):
        processor.start()
        return
    at_ms = batch["at_ms"]
    if batch["tick"]:
        processor.tick(at_ms)
    for topic, queue in list(processor.paused_topics.items()):
        if processor.accepts_sends(queue):
            processor.resume(topic)
    processor.take([input_record(fields, at_ms) for fields in batch["records"]], at_ms)


SOURCES = pytest.mark.parametrize("source", ["changelog", "rocksdb"])


@SOURCES
def test_every_row_is_read(source: str, tmp_path: Path) -> None:
    expected = read_lines(f"{source}.rows.jsonl")
    with open_source(source, tmp_path) as store:
        items = list(store.items_from(b""))
    assert plain_rows(items, read_value) == [_as_read_now(row) for row in expected]
    assert {key[0] for key, _ in items} == {0, *Kind} - _NEWER


_NEWER = {Kind.IDLE_GROUP, Kind.UNFINISHED, Kind.SENT_ID, Kind.SENT_PAGE, Kind.CONFIGURATION}
"""Kinds of rows that came later."""


def _as_read_now(row: list[Any]) -> list[Any]:
    """The row with the defaults of what came later."""
    key, value = row
    if _kind(row) == Kind.QUEUE:
        added = list(QueueRow._field_defaults.values())[len(value) - len(QueueRow._fields) :]
        return [key, [*value, *map(plain, added)]]
    if _kind(row) == Kind.GROUP:
        return [key, [value, 0, 0]]
    if _kind(row) == Kind.XID:
        return [key, list(XidRow(*value))]
    if _kind(row) == Kind.CLOCK:
        return [key, [*value, levels.OLDEST]]
    if _kind(row) == Kind.OPERATION:
        return [key, [*value, 0]]
    return row


@SOURCES
def test_the_rings_are_the_same_and_continue_the_same(source: str, tmp_path: Path) -> None:
    """The first batch lists every queue; later ones settle, send, commit and let time pass."""
    expected = read_lines(f"{source}.outputs.jsonl")
    found: list[list[Any]] = []
    with open_source(source, tmp_path) as store:
        processor = open_processor(store)
        for number, batch in enumerate(CONTINUED["batches"]):
            play(processor, batch)
            found += [[number, *record] for record in comparable(processor.outputs())]
            store.apply(processor.writes().store)
            processor.committed(1 << 24)
    assert [line for line in found if line[0] == 0] == [line for line in expected if line[0] == 0]
    assert_same(source, found, expected)


def assert_same(source: str, found: list[list[Any]], expected: list[list[Any]]) -> None:
    """What a crash has taken is lost at the start; it was at the first use of each queue (R82)."""
    if source == "changelog":
        lost = sorted(_lost(found))
        assert lost == sorted(_lost(expected))
        assert lost
    assert found == expected


def _lost(lines: list[list[Any]]) -> list[str]:
    """Take out the lost, and what depends on when they are: numbers of steps, and counts."""
    events = [line for _, role, _, body, _ in lines if role == "events" for line in body]
    lost = [line["id"] for line in events if line["event"] == "lost"]
    for _, role, _, body, _ in lines:
        if role == "events":
            body[:] = [line for line in body if line["event"] != "lost"]
            for line in body:
                del line["step"]
        for answer in [line.get("answer", {}) for line in body if role == "replies"]:
            answer.pop("counts", None)
            for state in ("ready", "scheduled"):
                if state in answer:
                    answer[state] = [each for each in answer[state] if each not in lost]
    lines[:] = [line for line in lines if line[1] != "events" or line[3]]
    return lost


def test_changelog_and_rocksdb_list_the_same_messages() -> None:
    """Only bodies differ (R82), so queues, counts, consumers and transactions do not."""
    lists = [
        [line for line in read_lines(f"{source}.outputs.jsonl") if line[0] == 0]
        for source in ("changelog", "rocksdb")
    ]
    assert lists[0] == lists[1]
    assert len(lists[0]) == len(CONTINUED["batches"][0]["records"])
    rows = [
        [row for row in read_lines(f"{source}.rows.jsonl") if _kind(row) not in _WITH_BODIES]
        for source in ("changelog", "rocksdb")
    ]
    assert rows[0] == rows[1]


_WITH_BODIES = (Kind.RING, Kind.SCHEDULED, Kind.DELIVERY)


def _kind(row: list[Any]) -> int:
    return base64.b64decode(row[0])[0]


@SOURCES
def test_a_state_that_was_continued_is_read_again(source: str, tmp_path: Path) -> None:
    """Old and new rows stand side by side; reopening after each batch changes nothing."""
    expected = read_lines(f"{source}.outputs.jsonl")
    found: list[list[Any]] = []
    with open_source(source, tmp_path) as store:
        for number, batch in enumerate(CONTINUED["batches"]):
            processor = open_processor(store)
            play(processor, batch)
            found += [[number, *record] for record in comparable(processor.outputs())]
            store.apply(processor.writes().store)
    assert_same(source, found, expected)
