"""Back-pressure by records and by bytes, without a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faust.types import TP

from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.input_buffer import MAX_BATCH_BYTES, InputBuffer
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


def test_stale_batches_are_skipped() -> None:
    reader = Reader(stale={ONE})
    waiting = buffer(10, reader)
    waiting.offer(batch(ONE, 3))
    waiting.offer(batch(OTHER, 2))
    assert len(waiting.take()) == 2
    waiting.offer(batch(OTHER, 2))
    waiting.clear()
    assert waiting.take() == []
