"""Records are packed into batches as they are added, without a broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

from ringfaust.kafka.transactions import RecordBatches


def batches(size: int) -> RecordBatches:
    return RecordBatches(lambda: BatchBuilder(size, 0))


def records_of(builder: Any) -> list[Any]:
    return list(DefaultRecordBatch(bytes(builder._build())))


def test_a_batch_has_the_time_of_its_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    packed = batches(1 << 20)  # created long before its first record
    monkeypatch.setattr(time, "time_ns", lambda: 9_000_000_000_000)
    packed.append((b"k", b"v", [("h", b"x")]))
    (record,) = records_of(packed.builders[0])
    assert record.timestamp == 9_000_000
    assert (record.key, record.value, list(record.headers)) == (b"k", b"v", [("h", b"x")])


def test_records_that_do_not_fit_go_into_another_batch() -> None:
    packed = batches(200)
    values = [b"%d" % number * 50 for number in range(5)]
    for value in values:
        packed.append((None, value, []))
    assert len(packed) == 5
    assert len(packed.builders) > 1
    assert [r.value for builder in packed.builders for r in records_of(builder)] == values
