"""Records with too many headers, recognized before anyone builds the headers (R121).

A compressed batch of 30 kB may have a record with 15 million headers, which would take gigabytes as
objects. The decoder in C puts a placeholder into the place of such a record. For the Kafka client,
which decodes compressed batches, and all of them where nothing is compiled, this module puts it
into the bytes.
"""

from __future__ import annotations

from typing import Final

from ringfaust.core import limits
from ringfaust.protocol.encoder import sized, varint
from ringfaust.protocol.headers import TOO_MANY_HEADERS

_HEADERS: Final = limits.HEADERS
_LEAST_BYTES: Final = 2 * limits.HEADERS
"""A header takes at least two bytes: the length of its name, and that of its value."""


class _Damaged(Exception):
    """The bytes end too early or make no sense. The client says so."""


def without_crowded(records: bytes) -> bytes:
    """The records of a batch, with a placeholder for each that has too many headers.

    The placeholder has the number, the time and the attributes of the record, no content, and the
    header `TOO_MANY_HEADERS` with the number of headers.

    Args:
        records: the bytes behind the header of an expanded batch of message format 2.
    """
    pieces: list[bytes] = []
    kept = at = 0
    try:
        while at < len(records):
            begin = at
            size, at = _varint_at(records, at)
            end = at + size
            if size < 0 or end > len(records):
                raise _Damaged
            if size > _LEAST_BYTES and (placeholder := _placeholder(records, at, end)):
                pieces += (records[kept:begin], sized(placeholder))
                kept = end
            at = end
    except _Damaged:
        return records
    return b"".join([*pieces, records[kept:]]) if pieces else records


def _placeholder(records: bytes, start: int, end: int) -> bytes:
    """What replaces the record between two places; empty if it may stay."""
    _, at = _varint_at(records, start + 1)  # behind the attributes: the time
    _, content_at = _varint_at(records, at)
    at = content_at
    for _ in ("key", "value"):
        size, at = _varint_at(records, at)
        at += max(size, 0)
    count, at = _varint_at(records, at)
    if count <= _HEADERS or count > (end - at) // 2:
        return b""
    header = sized(TOO_MANY_HEADERS.encode()) + sized(b"%d" % count)
    return records[start:content_at] + sized(None) + sized(None) + varint(1) + header


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """A number, and the place behind it."""
    raw = shift = 0
    while at < len(data) and shift < 64:  # noqa: PLR2004 - no number has more bits
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a number has no mark
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise _Damaged
