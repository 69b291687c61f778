"""Encodes events, and appends records to batches of Kafka's message format 2."""

from __future__ import annotations

from typing import Any

from ringfaust.compiled import in_c
from ringfaust.core import effects as e
from ringfaust.protocol.events import WRITERS, event_tail
from ringfaust.protocol.outputs import dispatched_record, evicted_record
from ringfaust.protocol.records import OutRecord

_NULL = b"\x01"
"""The length −1, in place of a key or value that is null."""


@in_c
def event_line(effect: Any, step: int, now_ms: int, by: str) -> str:
    """The line of the events topic that reports an effect.

    Args:
        effect: of any kind.
        step: its number.
        now_ms: its time.
        by: what caused it; see `events`.
    """
    return WRITERS[type(effect)](effect, step) + event_tail(now_ms, by)


@in_c
def append_record(batch: bytearray, number: int, record: OutRecord, most_bytes: int) -> bool:
    """Append a record to the records of a batch, without a time of its own.

    Args:
        batch: the batch, with room for its header.
        number: how many records it has. The first is appended in any case.
        record: its key, value and headers.
        most_bytes: what the batch may have then.

    Returns:
        False if it would have more; nothing is appended then.
    """
    return _append(batch, number, record, most_bytes)


@in_c
def append_row(
    batch: bytearray, number: int, row: tuple[bytes, bytes | None], most_bytes: int
) -> bool:
    """Append a record without headers, from its key and value; otherwise as `append_record`."""
    return _append(batch, number, (*row, []), most_bytes)


@in_c
def append_evicted(batch: bytearray, number: int, effect: e.Evicted, most_bytes: int) -> bool:
    """Append `outputs.evicted_record`; otherwise as `append_record`."""
    return _append(batch, number, evicted_record(effect), most_bytes)


@in_c
def append_dispatched(batch: bytearray, number: int, effect: e.Dispatched, most_bytes: int) -> bool:
    """Append `outputs.dispatched_record`; otherwise as `append_record`."""
    return _append(batch, number, dispatched_record(effect), most_bytes)


def _append(batch: bytearray, number: int, record: OutRecord, most_bytes: int) -> bool:
    key, value, headers = record
    parts = [b"\0\0", varint(number)]  # no attributes, no time
    parts += [sized(key), sized(value), varint(len(headers))]
    for name, content in headers:
        parts += (sized(name.encode()), sized(content))
    body = b"".join(parts)
    size = varint(len(body))
    if number and len(batch) + len(size) + len(body) > most_bytes:
        return False
    batch += size + body
    return True


def sized(data: bytes | None) -> bytes:
    """Bytes behind their length, as a record has its key, its value and the parts of a header."""
    return _NULL if data is None else varint(len(data)) + data


def varint(number: int) -> bytes:
    """A whole number ≥ 0 as Kafka writes it: zigzag, seven bits a byte, the lowest first."""
    rest = number << 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
