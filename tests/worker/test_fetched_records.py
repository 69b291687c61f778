"""Records that are decoded in C are those that the Kafka client would return (ADR 39)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack
from typing import Any

import google_crc32c
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from ringfaust.protocol.records import FetchedRecord
from ringfaust.worker import consumer_thread, vendor

TP = TopicPartition("in", 3)
CONTROL = 0x20
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")


def batch(
    offset: int,
    count: int,
    *,
    producer: int = -1,
    marker: bytes | None = None,
    compression: int = 0,
) -> bytes:
    """A batch, of a transaction if the producer has an id; `marker` ends the transaction."""
    builder = DefaultRecordBatchBuilder(2, compression, producer >= 0, producer, 0, 0, 1 << 20)
    for number in range(count):
        value = b"%d of %d" % (offset + number, producer)
        builder.append(number, 1_000 + number, marker, value, [("name", b"x")] * (number % 3))
    made = bytearray(builder.build())
    made[:8] = pack(">q", offset)
    if marker is not None:
        made[22] |= CONTROL
    made[17:21] = pack(">I", google_crc32c.value(bytes(made[21:])))
    return bytes(made)


FETCHED = b"".join(
    [
        batch(0, 5),
        batch(5, 3, producer=7),
        batch(8, 4, producer=8),
        batch(12, 1, producer=7, marker=ABORT),
        batch(13, 4, compression=1),
        batch(17, 2, producer=7),
        batch(19, 1, producer=8, marker=COMMIT),
        batch(20, 7),
        batch(30, 2),
    ]
)
ABORTED = [(7, 5)]
"""The producer's first transaction; its second one is committed later."""


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Our classes for what was fetched, and for its records."""
    for name in ("MemoryRecords", "PartitionRecords"):
        monkeypatch.setattr(fetcher, name, getattr(fetcher, name))
    vendor.decode_in_c()
    return fetcher.MemoryRecords, fetcher.PartitionRecords


THE_CLIENTS = fetcher.MemoryRecords, fetcher.PartitionRecords
"""Before any test has replaced them."""


def read(classes: tuple[Any, Any], raw: bytes, start: int, isolation: int, **how: Any) -> Any:
    fetched, records_of = classes
    deserializer = how.get("deserializer")
    return records_of(TP, fetched(raw), ABORTED, start, None, deserializer, True, isolation)


def steps(records: Any) -> Iterator[tuple[Any, ...]]:
    """Each record, and where the client would fetch next then."""
    for record in records:
        yield *(getattr(record, name) for name in FIELDS), records.next_fetch_offset
    yield "end", records.next_fetch_offset


@pytest.mark.parametrize("start", range(5))
def test_they_are_those_of_the_client(ours: Any, start: int) -> None:
    """A broker returns the whole batch that has the first record asked for."""
    committed = list(steps(read(ours, FETCHED, start, READ_COMMITTED)))
    assert committed == list(steps(read(THE_CLIENTS, FETCHED, start, READ_COMMITTED)))
    offsets = [step[2] for step in committed[:-1]]
    assert offsets == [*range(start, 5), *range(8, 12), *range(13, 19), *range(20, 27), 30, 31]
    assert committed[-1] == ("end", 32)
    all_of_them = list(steps(read(ours, FETCHED, start, READ_UNCOMMITTED)))
    assert all_of_them == list(steps(read(THE_CLIENTS, FETCHED, start, READ_UNCOMMITTED)))
    assert len(all_of_them) == len(committed) + 3


def test_a_processor_gets_one_type_of_record_whoever_decodes_it(ours: Any) -> None:
    """It reads the fields by their place."""
    assert {type(each) for each in read(ours, FETCHED, 0, READ_COMMITTED)} == {FetchedRecord}
    error = UnicodeDecodeError("utf-8", b"", 0, 1, "")
    assert type(consumer_thread._placeholder(TP, 7, error)) is FetchedRecord


def test_an_old_batch_is_left_to_the_client(ours: Any) -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(20, 1_000, b"key", b"old")
    raw = bytes(builder.build())
    found = list(steps(read(ours, raw, 0, READ_COMMITTED)))
    assert found == list(steps(read(THE_CLIENTS, raw, 0, READ_COMMITTED)))
    assert found[0][2:7] == (20, 1_000, 0, b"key", b"old")


def test_a_deserializer_is_used(ours: Any) -> None:
    def deserializer(value: bytes) -> str:
        return value.decode()

    found = list(read(ours, FETCHED, 0, READ_COMMITTED, deserializer=deserializer))
    assert found[0].value == "0 of -1"


@pytest.mark.parametrize("at", [70, len(batch(0, 5)) + 17, len(FETCHED) - 1])
def test_a_wrong_checksum_is_found(ours: Any, at: int) -> None:
    raw = bytearray(FETCHED)
    raw[at] ^= 1
    with pytest.raises(CorruptRecordException, match="Invalid CRC"):
        list(read(ours, bytes(raw), 0, READ_COMMITTED))
