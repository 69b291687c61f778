"""Records that are decoded in C are those that the Kafka client would return (ADR 39)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from struct import pack
from types import SimpleNamespace
from typing import Any

import cramjam
import google_crc32c
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from ringfaust import compiled
from ringfaust.core import limits
from ringfaust.errors import ProtocolError
from ringfaust.protocol.decoder import held_bytes
from ringfaust.protocol.encoder import varint
from ringfaust.protocol.records import FetchedRecord
from ringfaust.protocol.routes import refuse_oversized
from ringfaust.worker.faust import decompression, vendor

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
    for name in ("MemoryRecords", "PartitionRecords", "FetchResult"):
        monkeypatch.setattr(fetcher, name, getattr(fetcher, name))
    for module in vendor.READERS_OF_BATCHES:
        for name in vendor.EXPANDERS:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))
    vendor.limit_decompression()
    vendor.decode_in_c()
    return fetcher.MemoryRecords, fetcher.PartitionRecords


@pytest.fixture(params=["python", "c"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who decodes plain batches: the client, as where nothing is compiled, or the module in C."""
    if request.param == "c" and compiled.NATIVE is None:
        pytest.skip(f"nothing is compiled: {compiled.KIND}")
    function = (
        compiled.NATIVE.records_of if request.param == "c" else compiled.IN_PYTHON["records_of"]
    )
    monkeypatch.setattr(vendor.decoder, "records_of", function)


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


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_a_control_batch_whose_marker_was_compacted_away_is_passed(
    ours: Any, isolation: int
) -> None:
    """Brokers keep a batch without records for a while. The client raises an error for it."""
    marker = bytearray(batch(5, 1, producer=7, marker=COMMIT)[:61])
    marker[8:12], marker[57:61] = pack(">i", 61 - 12), bytes(4)
    marker[17:21] = pack(">I", google_crc32c.value(bytes(marker[21:])))
    raw = batch(0, 5, producer=7) + bytes(marker) + batch(6, 2, producer=7)
    records_of = ours[1](TP, ours[0](raw), [], 0, None, None, True, isolation)
    assert [each.offset for each in records_of] == [0, 1, 2, 3, 4, 6, 7]


def test_a_processor_gets_one_type_of_record_whoever_decodes_it(ours: Any) -> None:
    """It reads the fields by their place."""
    assert {type(each) for each in read(ours, FETCHED, 0, READ_COMMITTED)} == {FetchedRecord}
    error = UnicodeDecodeError("utf-8", b"", 0, 1, "")
    assert type(decompression.placeholder(TP, 7, error)) is FetchedRecord


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


def test_a_fetch_is_bounded_in_bytes_of_keys_headers_and_values(ours: Any) -> None:
    """R121. One fetch of 4,000 records with 20 kB of headers each was 80 MB."""
    each = (b"key", b"value", [(f"name {n}", bytes(190)) for n in range(100)])
    builder = DefaultRecordBatchBuilder(2, 3, 0, -1, -1, -1, 1 << 30)
    for number in range(1_000):
        builder.append(number, 1, *each)
    records = read(ours, bytes(builder.build()), 0, READ_COMMITTED)
    state = SimpleNamespace(paused=False, position=0, consumed_to=lambda at: None)
    assignment: Any = SimpleNamespace(active=True, state_value=lambda tp: state)
    state.consumed_to = lambda offset: setattr(state, "position", offset)
    result = fetcher.FetchResult(TP, assignment=assignment, partition_records=records, backoff=0)
    found = []
    while result.has_more():
        found.append(result.getall(4_000))
        assert state.position == found[-1][-1].offset + 1
        assert held_bytes(found[-1]) < vendor.FETCH_BYTES + 16 * 50_000
    assert [len(part) for part in found[:-1]] == [len(found[0])] * (len(found) - 1)
    assert [record.offset for part in found for record in part] == list(range(1_000))
    assert len(found) == 8


def crowded(headers: int, *, compress: bool) -> bytes:
    """Three records, the second of which has this many headers without a name or a content."""
    plain, zstd = bytearray(batch(0, 3)), 4
    ends = [61]
    for _ in range(3):  # each record is shorter than 64 bytes
        ends.append(ends[-1] + 1 + plain[ends[-1]] // 2)
    full = (
        b"\0\2\2" + varint(3) + b"key" + varint(5) + b"value" + varint(headers) + b"\0\1" * headers
    )
    records = plain[61 : ends[1]] + varint(len(full)) + full + plain[ends[2] :]
    if compress:
        plain[22] |= zstd
        records = bytearray(cramjam.zstd.compress(bytes(records)))
    made = plain[:61] + records
    made[8:12] = pack(">i", len(made) - 12)
    made[17:21] = pack(">I", google_crc32c.value(bytes(made[21:])))
    return bytes(made)


BY = pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])


@BY
@pytest.mark.usefixtures("decoder")
def test_too_many_headers_are_recognized_before_they_are_built(ours: Any, compress: bool) -> None:
    """R121: 15 million headers in 29 kB cost 1.2 GB, and were refused then."""
    raw, before = crowded(400_000, compress=compress), batch(0, 3)
    tracemalloc.start()
    records = list(read(ours, raw, 0, READ_COMMITTED))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 5 * 800_000
    others = list(read(THE_CLIENTS, before, 0, READ_COMMITTED))
    assert [records[0].value, records[2].value] == [others[0].value, others[2].value]
    assert records[1][2:7] == (1, 1_001, 0, None, None)
    with pytest.raises(ProtocolError, match="^400000 headers; the worker takes") as refused:
        refuse_oversized(records[1], 900_000)
    assert refused.value.reason == "too_large"


@BY
@pytest.mark.usefixtures("decoder")
def test_as_many_headers_as_allowed_are_read(ours: Any, compress: bool) -> None:
    raw = crowded(limits.HEADERS, compress=compress)
    records = list(read(ours, raw, 0, READ_COMMITTED))
    assert records[1].headers == (("", None),) * limits.HEADERS
    assert (records[1].key, records[1].value) == (b"key", b"value")
    refuse_oversized(records[1], 900_000)
