"""Back-pressure by records and by bytes, without a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faust.types import TP

from ringfaust.worker.consumer_thread import Batch
from ringfaust.worker.inbox import MOST_BYTES, Inbox

ONE, OTHER = TP("one", 0), TP("other", 0)


@dataclass
class Reader:
    """Notes what is held."""

    held: set[TP] = field(default_factory=set)
    stale: set[TP] = field(default_factory=set)

    def hold(self, tp: TP) -> None:
        self.held.add(tp)

    def go_on(self, tp: TP) -> None:
        self.held.discard(tp)

    def is_current(self, batch: Batch) -> bool:
        return batch.tp not in self.stale


@dataclass
class Record:
    offset: int
    serialized_value_size: int


def batch(tp: TP, count: int, size: int = 10) -> Any:
    return Batch(tp, [Record(number, size) for number in range(count)], 1)  # type: ignore[misc]


def test_many_records_hold_the_partition_until_they_are_taken() -> None:
    reader = Reader()
    inbox = Inbox(10, lambda: reader)  # type: ignore[arg-type, return-value]
    inbox.offer(batch(ONE, 6))
    assert reader.held == set()
    inbox.offer(batch(ONE, 6))
    inbox.offer(batch(OTHER, 6))
    assert reader.held == {ONE, OTHER}
    assert len(inbox.take()) == 12
    assert reader.held == set()
    assert inbox.arrived.is_set()
    assert len(inbox.take()) == 6
    assert not inbox.arrived.is_set()


def test_large_records_hold_the_partition_and_make_small_turns() -> None:
    reader = Reader()
    inbox = Inbox(1000, lambda: reader)  # type: ignore[arg-type, return-value]
    for _ in range(3):
        inbox.offer(batch(ONE, 2, MOST_BYTES // 2))
    assert reader.held == {ONE}
    assert [len(inbox.take()) for _ in range(4)] == [2, 2, 2, 0]
    assert reader.held == set()


def test_what_is_stale_is_not_taken() -> None:
    reader = Reader(stale={ONE})
    inbox = Inbox(10, lambda: reader)  # type: ignore[arg-type, return-value]
    inbox.offer(batch(ONE, 3))
    inbox.offer(batch(OTHER, 2))
    assert len(inbox.take()) == 2
    inbox.offer(batch(OTHER, 2))
    inbox.clear()
    assert inbox.take() == []
