"""The decoder in C reads what aiokafka reads, and leaves to it what it does not understand."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from ringfaust import compiled
from ringfaust.protocol.records import HEADER_BYTES, RECORD_BYTES, FetchedRecord
from tests.native.checks import assert_keeps_nothing
from tests.protocol.made_effects import data

BASE_OFFSET = 1_000_000_007
ATTRIBUTES_AT, FIRST_TIME_AT, RECORDS_AT = 22, 27, 61
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
    some=records, around=st.tuples(st.binary(max_size=9), st.binary(max_size=9)),
    skipped=st.integers(-1, 14), attributes=st.sampled_from([0, LOG_APPEND_TIME]),
)  # fmt: skip
def test_it_reads_what_the_client_reads(
    c: Any, some: list[Any], around: tuple[bytes, bytes], skipped: int, attributes: int
) -> None:
    batch, first = batch_of(some, attributes=attributes), BASE_OFFSET + skipped
    found = c.records_of(batch.join(around), len(around[0]), first, "in", 3)
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
def test_it_leaves_the_rest_to_the_client(c: Any, batch: bytes) -> None:
    assert c.records_of(batch, 0, 0, "in", 3) is None


@pytest.mark.parametrize(
    ("field_at", "field"),
    [(0, 2**63 - 1), (FIRST_TIME_AT, 2**63 - 1)],
    ids=["offset", "time"],
)
def test_it_leaves_numbers_beyond_64_bits_to_the_client(c: Any, field_at: int, field: int) -> None:
    made = bytearray(batch_of([(0, None, None, []), (1, None, None, [])]))
    made[field_at : field_at + 8] = field.to_bytes(8, "big")
    assert c.records_of(bytes(made), 0, 0, "in", 3) is None


@given(some=records, at=st.integers(0, 2**20), byte=st.integers(0, 255))
def test_a_damaged_batch_is_read_as_the_client_reads_it_or_not_at_all(
    c: Any, some: list[Any], at: int, byte: int
) -> None:
    damaged = bytearray(batch_of(some))
    count_at = RECORDS_AT - 4
    damaged[count_at + at % (len(damaged) - count_at)] = byte
    found = c.records_of(bytes(damaged), 0, 0, "in", 3)
    assert found is None or found == by_client(bytes(damaged))


@pytest.mark.parametrize("wrong", [(), ("text", 0, 0, "in", 3), (b"", 0, 0, b"in", 3)])
def test_wrong_arguments_are_refused(c: Any, wrong: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        c.records_of(*wrong)


def test_nothing_is_kept(c: Any) -> None:
    batch, topic, partition = batch_of(ONE * 50), "a topic", 70_000
    bad = batch_of(ONE).replace(b"name", b"\xff\xff\xff\xff")
    calls = [
        lambda fetched=fetched: c.records_of(fetched, 0, BASE_OFFSET + 5, topic, partition)
        for fetched in (batch, bad, batch[:-1])
    ]
    assert_keeps_nothing(calls, [batch, bad, topic, partition, FetchedRecord])


def test_python_leaves_all_to_the_client() -> None:
    assert compiled.IN_PYTHON["records_of"](batch_of(ONE), 0, 0, "in", 3) is None


@given(some=records)
def test_what_records_take_is_counted_alike(some: list[Any]) -> None:
    found = by_client(batch_of(some))
    held = compiled.IN_PYTHON["held_bytes"](found)
    contents = [part for _, *parts, pairs in some for part in (*parts, *sum(pairs, ())) if part]
    objects = len(some) * RECORD_BYTES + sum(len(pairs) for *_, pairs in some) * HEADER_BYTES
    assert held == objects + sum(map(len, contents))
    if compiled.NATIVE is not None:
        assert compiled.NATIVE.held_bytes(found) == held


NO_RECORDS = [
    BASE_OFFSET, [BASE_OFFSET], [()], [FetchedRecord(key=7)], [FetchedRecord(headers=7)],  # type: ignore[arg-type]
    [FetchedRecord(headers=[7])], [FetchedRecord(headers=[("name",)])],  # type: ignore[list-item]
]  # fmt: skip


@pytest.mark.parametrize("wrong", NO_RECORDS)
def test_what_is_no_record_is_not_counted(functions: Any, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        functions.held_bytes(wrong)


def test_counting_keeps_nothing(c: Any) -> None:
    good = by_client(batch_of(ONE * 9))
    calls = [lambda given=given: c.held_bytes(given) for given in (good, *NO_RECORDS)]
    assert_keeps_nothing(calls, [*good, *NO_RECORDS, FetchedRecord])
