"""Avro values: what is decoded, and what would cost too much."""

from __future__ import annotations

import io
from typing import Any

import pytest

from ringfaust.console.avro import MOST_DEPTH, MOST_VALUES, read_avro

fastavro = pytest.importorskip("fastavro")

EMPTY = {"type": "record", "name": "Empty", "fields": []}
NOTHING = {"type": "fixed", "name": "Nothing", "size": 0}
CHAIN = {"type": "record", "name": "C", "fields": [{"name": "next", "type": ["null", "C"]}]}
ALL = {
    "type": "record", "name": "All", "namespace": "of.shop",
    "fields": [
        {"name": "a", "type": ["null", "boolean"]}, {"name": "b", "type": "int"},
        {"name": "c", "type": {"type": "array", "items": ["long", "string"]}},
        {"name": "d", "type": {"type": "map", "values": "double"}}, {"name": "e", "type": "float"},
        {"name": "f", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "g", "type": {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}},
        {"name": "h", "type": "bytes"}, {"name": "i", "type": {"type": "array", "items": "Two"}},
        {"name": "j", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "k", "type": {"type": "array", "items": "null"}},
    ],
}  # fmt: skip
WHOLE = {
    "a": True, "b": -(2**31), "c": [2**63 - 1, "x", -1], "d": {"x": 0.5, "y": 1.5}, "e": 0.25,
    "f": b"ab", "g": "blue", "h": b"\xff" * 200, "i": [b"ab"] * 3, "j": "no uuid", "k": [None] * 9,
}  # fmt: skip


def parsed(schema: Any) -> tuple[Any, dict[str, Any]]:
    named: dict[str, Any] = {}
    return fastavro.parse_schema(schema, named), named


def number(value: int) -> bytes:
    """As Avro writes one."""
    rest, out = (value << 1) ^ (value >> 63), b""
    while rest > 0x7F:
        rest, out = rest >> 7, out + bytes([rest & 0x7F | 0x80])
    return out + bytes([rest])


def test_every_type_is_read() -> None:
    schema, named = parsed(ALL)
    content = WHOLE | {"j": "00000000-0000-0000-0000-000000000001"}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, content)
    found = read_avro(schema, named, out.getvalue())
    assert {**found, "j": str(found["j"])} == content
    for cut in range(len(out.getvalue()) - 1):
        with pytest.raises(ValueError, match=r"ends|is not from"):
            read_avro(schema, named, out.getvalue()[:cut])


def test_a_block_with_its_length_is_read() -> None:
    schema, named = parsed({"type": "array", "items": "int"})
    assert read_avro(schema, named, number(-2) + number(2) + b"\x02\x04\x00") == [1, 2]


@pytest.mark.parametrize("items", ["null", EMPTY, NOTHING, "string", "long"])
@pytest.mark.parametrize("claimed", [MOST_VALUES, 2**40, -(2**40), 2**62])
def test_claimed_items_are_not_believed(items: Any, claimed: int) -> None:
    schema, named = parsed({"type": "array", "items": items})
    with pytest.raises(ValueError, match="claims"):
        read_avro(schema, named, number(claimed) + number(2) + b"\x00")


def test_claims_count_together() -> None:
    schema, named = parsed({"type": "array", "items": {"type": "array", "items": "null"}})
    body = number(100) + (number(2_000) + b"\x00") * 100 + b"\x00"
    with pytest.raises(ValueError, match="claims"):
        read_avro(schema, named, body)


def test_what_nests_too_deep_is_not_decoded() -> None:
    """The C code of fastavro would end the process at some thousand levels."""
    schema, named = parsed(CHAIN)
    deep = b"\x02" * (MOST_DEPTH // 2 - 1) + b"\x00"
    assert read_avro(schema, named, deep)["next"]
    with pytest.raises(ValueError, match="too deep"):
        read_avro(schema, named, b"\x02" * 90_000 + b"\x00")


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (["null", "int"], number(2)), (["null", "int"], number(-1)), ("bytes", number(-1)),
        ("bytes", number(2**40) + b"x"), ("long", b"\x80" * 20), ("double", b"1234567"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(schema: Any, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends|is not from"):
        read_avro(*parsed(schema), body)
