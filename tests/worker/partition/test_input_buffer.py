"""Back-pressure by records and by bytes, without a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from faust.types import TP

from ringfaust.protocol.records import FetchedRecord
from ringfaust.worker.interfaces import Batch
from ringfaust.worker.partition.input_buffer import MAX_BATCH_BYTES, InputBuffer
from tests.records import new_record

ONE, OTHER = TP("one", 0), TP("other", 0)


@dataclass
class Reader:
    """Notes which partitions are paused."""

    paused: set[TP] = field(default_factory=set)
    stale: set[TP] = field(default_factory=set)

    def pause(self, tp: TP) -> None:
        self.paused.add(tp)

    def resume(self, tp: TP) -> None:
        self.paused.discard(tp)

    def is_current(self, batch: Batch) -> bool:
        return batch.tp not in self.stale


def buffer(max_records: int, reader: Reader) -> InputBuffer:
    return InputBuffer(max_records, lambda: reader)  # type: ignore[arg-type, return-value]


def batch(tp: TP, count: int, size: int = 10) -> Any:
    return Batch(tp, [new_record("in", number, bytes(size)) for number in range(count)], 1, count)  # type: ignore[misc]


def test_a_full_buffer_pauses_the_partition_until_its_records_are_taken() -> None:
    reader = Reader()
    waiting = buffer(4, reader)
    waiting.offer(batch(ONE, 6))
    assert reader.paused == set()
    waiting.offer(batch(ONE, 6))
    waiting.offer(batch(OTHER, 2))
    assert reader.paused == {ONE, OTHER}
    assert len(waiting.take()) == 6
    assert reader.paused == set()
    assert waiting.arrived.is_set()
    assert len(waiting.take()) == 8
    assert not waiting.arrived.is_set()


def test_topics_take_turns_and_each_stays_in_order() -> None:
    waiting = buffer(1, Reader())
    fetched = [batch(ONE, 1), batch(ONE, 2), batch(ONE, 3), batch(OTHER, 4), batch(OTHER, 5)]
    for each in fetched:
        waiting.offer(each)
    taken = [waiting.take() for _ in fetched]
    assert [len(records) for records in taken] == [1, 4, 2, 5, 3]
    assert waiting.take() == []


def test_large_records_pause_the_partition_and_make_small_batches() -> None:
    reader = Reader()
    waiting = buffer(1000, reader)
    for _ in range(3):
        waiting.offer(batch(ONE, 2, MAX_BATCH_BYTES // 2))
    assert reader.paused == {ONE}
    assert [len(waiting.take()) for _ in range(4)] == [2, 2, 2, 0]
    assert reader.paused == set()


@pytest.mark.parametrize(
    "large",
    [
        new_record("in", 0, b"", [(f"name {n}", bytes(400)) for n in range(100)]),
        new_record("in", 0, b"", key=bytes(42_000)),
        new_record("in", 0, b"", [("n", None)] * 400),
    ],
    ids=["headers", "keys", "many small headers"],
)
def test_keys_and_headers_count_as_values_do(large: FetchedRecord) -> None:
    """R121. A backlog of 286 MB took 260 MB in values, and 698 MB in headers."""
    reader = Reader()
    waiting = buffer(100_000, reader)
    fetched = Batch(ONE, [large] * 100, 1, 100)
    while not reader.paused and waiting.records < 1_000:
        waiting.offer(fetched)
    assert waiting.records == 200
    assert len(waiting.take()) == 200


def test_stale_batches_are_skipped() -> None:
    reader = Reader(stale={ONE})
    waiting = buffer(10, reader)
    waiting.offer(batch(ONE, 3))
    waiting.offer(batch(OTHER, 2))
    assert len(waiting.take()) == 2
    waiting.offer(batch(OTHER, 2))
    waiting.clear()
    assert waiting.take() == []
