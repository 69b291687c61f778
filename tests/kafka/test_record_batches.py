"""Records are packed into batches as they are added, byte for byte as aiokafka would."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.producer.message_accumulator import BatchBuilder, MessageBatch
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.core import effects as e
from ringfaust.kafka.packed_batch import PackedBatch
from ringfaust.protocol.outputs import dispatched_record, evicted_record
from ringfaust.protocol.record_batches import RecordBatches, append_dispatched, append_evicted
from ringfaust.protocol.records import OutRecord
from tests.protocol.made_effects import dispatches, evictions, records

BATCH_BYTES = 3_000
NOW_MS = 9_000_000


@pytest.fixture(autouse=True, scope="module")
def _clock() -> Iterator[None]:
    """The clock stands still, so that two ways of packing agree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
        yield


def built(packed: RecordBatches) -> list[bytes]:
    """What is sent."""
    found = []
    for each in packed.batches:
        batch = PackedBatch(each)
        batch._set_producer_state(2**40, 7, 5)
        found.append(bytes(batch._build()))
        assert batch.size() == len(found[-1])
    return found


def built_by_aiokafka(records: list[OutRecord]) -> list[bytes]:
    """The same records in aiokafka's own batches."""
    builders: list[Any] = []
    for key, value, headers in records:
        fields = {"timestamp": NOW_MS, "key": key, "value": value, "headers": headers}
        if not builders or builders[-1].append(**fields) is None:
            builders.append(BatchBuilder(BATCH_BYTES, 0, is_transactional=1))
            assert builders[-1].append(**fields) is not None
    for builder in builders:
        builder._set_producer_state(2**40, 7, 5)
    return [bytes(builder._build()) for builder in builders]


def records_of(raw: bytes) -> list[Any]:
    return list(DefaultRecordBatch(raw))


def test_records_have_the_time_at_which_they_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = RecordBatches(1 << 20)
    packed.append((b"k", b"v", [("h", b"x")]))
    monkeypatch.setattr(time, "time_ns", lambda: 9_500_000_000_000)
    (record,) = records_of(built(packed)[0])
    assert record.timestamp == 9_500_000
    assert (record.key, record.value, list(record.headers)) == (b"k", b"v", [("h", b"x")])


def test_records_that_do_not_fit_go_into_another_batch() -> None:
    packed = RecordBatches(200)
    values = [b"%d" % number * 50 for number in range(5)]
    for value in values:
        packed.append((None, value, []))
    assert len(packed) == 5
    assert len(packed.batches) > 1
    assert [r.value for raw in built(packed) for r in records_of(raw)] == values


def test_a_batch_that_is_sent_again_has_the_same_bytes() -> None:
    packed = RecordBatches(BATCH_BYTES)
    packed.append((None, b"v", []))
    batch = PackedBatch(packed.batches[0])
    batch._set_producer_state(1, 2, 3)
    assert bytes(batch._build()) == bytes(batch._build())


def test_a_compressed_batch_has_the_same_records() -> None:
    packed = RecordBatches(1 << 20)
    for number in range(500):
        packed.append((b"%d" % number, b"a value that is often the same", [("h", b"x")]))
    (plain,) = built(packed)
    for _ in range(2):  # also if it is packed again
        batch = PackedBatch(packed.batches[0], compress=True)
        batch._set_producer_state(2**40, 7, 5)
        raw = bytes(batch._build())
        assert batch.size() == len(raw) < len(plain) / 3
        found = DefaultRecordBatch(raw)
        assert found.validate_crc()
        assert found.is_transactional
        assert [(r.key, r.value, r.headers) for r in found] == [
            (r.key, r.value, r.headers) for r in records_of(plain)
        ]


async def test_aiokafka_sends_a_packed_batch_like_its_own() -> None:
    packed = RecordBatches(BATCH_BYTES)
    packed.append((b"k", b"v", []))
    sent = MessageBatch(TopicPartition("out", 0), PackedBatch(packed.batches[0]), 60, 10)
    assert not sent.is_empty()
    assert sent.remaining_linger() is None  # at once
    sent.set_producer_state(2**40, 7, 5)
    sent.drain_ready()
    assert bytes(sent.get_data_buffer()) == built(packed)[0]
    assert sent.record_count == 1
    sent.done(41)
    assert (await sent.future).offset == 41


@given(st.lists(records, min_size=1, max_size=40))
def test_records_are_packed_as_aiokafka_packs_them(some: list[OutRecord]) -> None:
    packed = RecordBatches(BATCH_BYTES)
    for record in some:
        packed.append(record)
    assert built(packed) == built_by_aiokafka(some)


def test_many_short_records_are_packed_as_aiokafka_packs_them() -> None:
    """The numbers of records in a batch take one, two and three bytes."""
    packed = RecordBatches(1 << 20)
    for _ in range(9_000):
        packed.append((None, b"", []))
    builder = BatchBuilder(1 << 20, 0, is_transactional=1)
    for _ in range(9_000):
        assert builder.append(timestamp=NOW_MS, key=None, value=b"", headers=[]) is not None
    builder._set_producer_state(2**40, 7, 5)
    assert built(packed) == [bytes(builder._build())]


@given(st.lists(evictions | dispatches, min_size=1, max_size=12))
def test_frequent_records_are_packed_as_their_headers_say(
    effects: list[e.Evicted | e.Dispatched],
) -> None:
    packed, plain = RecordBatches(BATCH_BYTES), list[OutRecord]()
    for effect in effects:
        for buffer in (packed, plain):
            if isinstance(effect, e.Evicted):
                append_evicted(buffer, effect)
            else:
                append_dispatched(buffer, effect)
    assert plain == [
        evicted_record(each) if isinstance(each, e.Evicted) else dispatched_record(each)
        for each in effects
    ]
    assert built(packed) == built_by_aiokafka(plain)
