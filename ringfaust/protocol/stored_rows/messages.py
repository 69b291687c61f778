"""The stored layout of a message, and of an input record that a Spark job keeps waiting.

Both end with the lengths of their texts up front and the texts behind, so a reader slices once.
Both readers raise `UnknownRowVersion` if a newer ringfaust wrote the row.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from ringfaust.core.model import Message
from ringfaust.errors import UnknownRowVersion
from ringfaust.protocol.records import FetchedRecord, Headers, Payload
from ringfaust.protocol.stored_rows.keys import POSITION_BYTES
from ringfaust.protocol.stored_rows.version import VERSION_BYTE, body_start

VERSION = 1
"""First byte of each stored message. A new layout gets a new number and the old stays readable."""

_U64 = Struct(">Q")
_MESSAGE = Struct(">BQ14sBQQQIIQHHHHiiH")
NON_PERSISTENT, BODYLESS, PRIORITY_MASK = 0x80, 0x40, 0x0F
"""In the byte of the priority: the message is not persistent; and its body is gone (R82)."""
_FLAGS_AT = Struct(">BQ14s").size
NO_VALUE = 0xFFFFFFFF
"""In place of a header value's length: the value is null."""


def write_message(m: Message) -> bytes:
    """Encode a message with its payload."""
    key, value, headers, source = m.payload
    flags = 0 if m.persistent else NON_PERSISTENT | (BODYLESS if m.is_bodyless else 0)
    id_, group, source_, holders = m.id.encode(), m.group.encode(), source.encode(), b""
    if m.holders:
        holders = "\0".join(m.holders).encode()
    head = _MESSAGE.pack(
        VERSION, m.sequence, m.position.to_bytes(POSITION_BYTES, "big"), m.priority | flags,
        m.enqueued_ms, m.expires_at_ms, m.due_ms, m.attempts, m.handovers, m.size_bytes,
        len(id_), len(group), len(source_), len(holders),
        -1 if key is None else len(key), -1 if value is None else len(value), len(headers),
    )  # fmt: skip
    body = (head, id_, group, source_, holders, key or b"", value or b"")
    if not headers:
        return b"".join(body)
    return b"".join(body) + _write_headers(headers)


def _write_headers(headers: Headers) -> bytes:
    """Encode the name and value of each header, with their lengths. A value may be null."""
    out = bytearray()
    for name, value in headers:
        raw = name.encode()
        out += _U64.pack(len(raw) << 32 | (NO_VALUE if value is None else len(value)))
        out += raw + (value or b"")
    return bytes(out)


def _read_headers(raw: bytes, at: int, count: int) -> tuple[tuple[str, bytes], ...]:
    headers: list[tuple[str, Any]] = []
    for _ in range(count):
        lengths = _U64.unpack_from(raw, at)[0]
        name_bytes, value_bytes = lengths >> 32, lengths & 0xFFFFFFFF
        at += 8
        name = raw[at : at + name_bytes].decode()
        at += name_bytes
        if value_bytes == NO_VALUE:
            headers.append((name, None))
        else:
            headers.append((name, raw[at : at + value_bytes]))
            at += value_bytes
    return tuple(headers)


def read_message(raw: bytes) -> Message:
    """Decode a message."""
    if raw[0] != VERSION:
        raise UnknownRowVersion("message", raw[0], VERSION)
    (
        _, sequence, position, priority, enqueued_ms, expires_at_ms, due_ms, attempts,
        handovers, size_bytes, id_len, group_len, source_len, holders_len, key_len, value_len,
        header_count,
    ) = _MESSAGE.unpack_from(raw)  # fmt: skip
    at = _MESSAGE.size
    parts = []
    for length in (id_len, group_len, source_len, holders_len, key_len, value_len):
        parts.append(None if length < 0 else raw[at : at + length])
        at += max(length, 0)
    id_, group, source, holders, key, value = parts
    headers = _read_headers(raw, at, header_count)
    payload = Payload(key, value, headers, source.decode())  # type: ignore[union-attr]
    return Message(
        id_.decode(), sequence, int.from_bytes(position, "big"), priority & PRIORITY_MASK,  # type: ignore[union-attr]
        enqueued_ms, expires_at_ms, due_ms, group.decode(), attempts, handovers,  # type: ignore[union-attr]
        tuple(holders.decode().split("\0")) if holders else (), size_bytes, payload,
        priority < NON_PERSISTENT, bool(priority & BODYLESS),
    )  # fmt: skip


def without_message_body(raw: bytes) -> bytes:
    """The stored message without key, value and headers, if it is non-persistent (R82)."""
    if not raw[_FLAGS_AT] & NON_PERSISTENT:
        return raw
    message = read_message(raw)
    payload = Payload(None, None, (), message.payload.source)
    return write_message(message._replace(payload=payload, is_bodyless=True))


_RECORD_BODY = Struct(">QQQBiiHH")
_RECORD = Struct(">BQQQBiiHH")
"""With the version byte in front."""


def write_record(record: FetchedRecord) -> bytes:
    """Encode an input record that has to wait (R90)."""
    topic, key, value = record.topic.encode(), record.key, record.value
    head = _RECORD.pack(
        VERSION_BYTE, record.partition, record.offset, record.timestamp, record.timestamp_type,
        -1 if key is None else len(key), -1 if value is None else len(value), len(topic),
        len(record.headers),
    )  # fmt: skip
    return b"".join((head, topic, key or b"", value or b"", _write_headers(record.headers)))


def read_record(raw: bytes) -> tuple[Any, ...]:
    """Decode a waiting record: the fields of a `FetchedRecord`, in their order."""
    at = body_start(raw, "waiting record")
    fields = _RECORD_BODY.unpack_from(raw, at)
    partition, offset, timestamp, kind, *lengths, header_count = fields
    at += _RECORD_BODY.size
    parts = []
    for length in (lengths[2], *lengths[:2]):
        parts.append(None if length < 0 else raw[at : at + length])
        at += max(length, 0)
    topic, key, value = parts
    headers = _read_headers(raw, at, header_count)
    return topic.decode(), partition, offset, timestamp, kind, key, value, headers  # type: ignore[union-attr]
