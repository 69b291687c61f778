"""The decoder in C reads what aiokafka reads, and leaves to it what it does not understand."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from ringfaust import compiled
from ringfaust.protocol import decoder
from ringfaust.protocol.decoder import records_of
from ringfaust.protocol.records import FetchedRecord
from tests.protocol.made_effects import data

pytestmark = pytest.mark.skipif(
    decoder.__file__.endswith(".py"), reason=f"nothing is compiled: {compiled.KIND}"
)

BASE_OFFSET = 1_000_000_007
ATTRIBUTES_AT, RECORDS_AT = 22, 61
LOG_APPEND_TIME, CONTROL = 8, 0x20

headers = st.lists(st.tuples(st.text(max_size=20), data), max_size=3)
records = st.lists(
    st.tuples(st.integers(0, 2**41), data, data, headers), min_size=1, max_size=12
)  # fmt: skip


def batch_of(some: list[Any], compression: int = 0, attributes: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 1 << 20)
    for number, (time_ms, key, value, pairs) in enumerate(some):
        builder.append(number, time_ms, key, value, list(pairs))
    made = bytearray(builder.build())
    made[:8] = BASE_OFFSET.to_bytes(8, "big")
    made[ATTRIBUTES_AT] |= attributes
    return bytes(made)


def by_client(batch: bytes, first_offset: int = 0) -> list[FetchedRecord]:
    return [
        FetchedRecord(
            "in", 3, each.offset, each.timestamp, each.timestamp_type, each.key, each.value,
            tuple(each.headers),
        )
        for each in DefaultRecordBatch(batch)
        if each.offset >= first_offset
    ]  # fmt: skip


@given(
    some=records, before=st.binary(max_size=9), behind=st.binary(max_size=9),
    skipped=st.integers(-1, 14), attributes=st.sampled_from([0, LOG_APPEND_TIME]),
)  # fmt: skip
def test_it_reads_what_the_client_reads(
    some: list[Any], before: bytes, behind: bytes, skipped: int, attributes: int
) -> None:
    batch, first = batch_of(some, attributes=attributes), BASE_OFFSET + skipped
    found = records_of(before + batch + behind, len(before), first, "in", 3)
    assert found == by_client(batch, first)
    assert all(type(record) is FetchedRecord for record in found or ())


ONE = [(1_700_000_000_000, b"key", b"value", [("name", b"content"), ("none", None)])]


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(ONE * 9, compression=1),
        batch_of(ONE, attributes=CONTROL),
        batch_of(ONE)[:-1],
        batch_of(ONE)[:RECORDS_AT],
        batch_of(ONE)[:20],
        batch_of(ONE).replace(b"name", b"\xff\xff\xff\xff"),
        batch_of(ONE)[:16] + b"\1" + batch_of(ONE)[17:],
    ],
    ids=["compressed", "control", "cut", "no record", "no header", "not UTF-8", "old format"],
)
def test_it_leaves_the_rest_to_the_client(batch: bytes) -> None:
    assert records_of(batch, 0, 0, "in", 3) is None


@given(some=records, at=st.integers(0, 2**20), byte=st.integers(0, 255))
def test_a_damaged_batch_is_read_as_the_client_reads_it_or_not_at_all(
    some: list[Any], at: int, byte: int
) -> None:
    damaged = bytearray(batch_of(some))
    count_at = RECORDS_AT - 4
    damaged[count_at + at % (len(damaged) - count_at)] = byte
    found = records_of(bytes(damaged), 0, 0, "in", 3)
    assert found is None or found == by_client(bytes(damaged))


@pytest.mark.parametrize("wrong", [(), ("text", 0, 0, "in", 3), (b"", 0, 0, b"in", 3)])
def test_wrong_arguments_are_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        records_of(*wrong)


def test_nothing_is_kept() -> None:
    batch, topic, partition = batch_of(ONE * 50), "a topic", 70_000
    bad = batch_of(ONE).replace(b"name", b"\xff\xff\xff\xff")

    def call() -> None:
        for fetched in (batch, bad, batch[:-1]):
            records_of(fetched, 0, BASE_OFFSET + 5, topic, partition)

    def references() -> list[int]:
        return [sys.getrefcount(each) for each in (batch, bad, topic, partition, FetchedRecord)]

    call()
    gc.collect()
    before = references()
    blocks = sys.getallocatedblocks()
    for _ in range(200):
        call()
    gc.collect()
    assert references() == before
    assert abs(sys.getallocatedblocks() - blocks) < 100
