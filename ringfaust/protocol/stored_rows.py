"""Stored rows: keys that sort in the order they are read, values of fixed layout or JSON.

The same bytes stand in RocksDB and in the changelog. A key is: kind (1 byte), queue, NUL, part, and
the rest by kind; whole numbers are big-endian, so that the order of bytes is the order of keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from struct import Struct
from typing import Any

from ringfaust.core.address import AddressRow
from ringfaust.core.model import AckMode, Consumer, Delivery, Message, Operation, XidRow
from ringfaust.core.queue import QueueRow
from ringfaust.core.settlement_history import Past
from ringfaust.core.state import Clock
from ringfaust.core.table import Kind, Row
from ringfaust.protocol.records import Headers, InRecord, Payload

VERSION = 1
"""First byte of each stored message; a new layout gets a new number and the old stays readable."""

_U64 = Struct(">Q")
_U16 = Struct(">H")
_POSITION_BYTES = 14
"""105 bits: see PLAIN in core/model.py."""

# --- keys ---------------------------------------------------------------------------------------


def table_prefix(kind: int, queue: str, part: Any) -> bytes:
    """What all keys of one table start with."""
    if kind in _WHOLE:
        return bytes((kind,))
    if kind == Kind.SESSION:
        return b"%c%b\0" % (kind, part.encode())
    prefix = b"%c%b\0" % (kind, queue.encode())
    if kind == Kind.RING:
        return prefix + bytes((part,))
    if kind == Kind.ENDED:
        return b"%b%b\0" % (prefix, part.encode())
    if kind == Kind.OPERATION:
        return prefix + _U64.pack(part)
    return prefix


_WHOLE = frozenset((Kind.CLOCK, Kind.QUEUE, Kind.WAKE, Kind.ADDRESS, Kind.XID))
"""Tables of the whole partition: nothing stands between kind and key."""


def _wake_key(key: tuple[int, str]) -> bytes:
    return _U64.pack(key[0]) + key[1].encode()


def _member_key(key: tuple[str, str]) -> bytes:
    return b"%b\0%b" % (key[0].encode(), key[1].encode())


def _read_member(raw: bytes) -> tuple[str, str]:
    queue, consumer = raw.split(b"\0")
    return queue.decode(), consumer.decode()


def _position(key: int) -> bytes:
    return key.to_bytes(_POSITION_BYTES, "big")


def _read_u64(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


_TAIL: dict[int, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    Kind.CLOCK: (lambda key: b"", lambda raw: 0),
    Kind.QUEUE: (str.encode, bytes.decode),
    Kind.CONSUMER: (_U64.pack, _read_u64),
    Kind.RING: (_position, _read_u64),
    Kind.DELIVERY: (_U64.pack, _read_u64),
    Kind.SCHEDULED: (_position, _read_u64),
    Kind.EXPIRY: (_position, _read_u64),
    Kind.WAKE: (_wake_key, lambda raw: (_read_u64(raw[:8]), raw[8:].decode())),
    Kind.GROUP: (str.encode, bytes.decode),
    Kind.SESSION: (_member_key, _read_member),
    Kind.ENDED: (_U64.pack, _read_u64),
    Kind.PAST: (str.encode, bytes.decode),
    Kind.DEPARTED: (_U64.pack, _read_u64),
    Kind.ADDRESS: (str.encode, bytes.decode),
    Kind.RETAINED: (_U64.pack, _read_u64),
    Kind.XID: (_U64.pack, _read_u64),
    Kind.OPERATION: (_U64.pack, _read_u64),
}


def write_key(row: Row) -> bytes:
    """The row's key."""
    kind, queue, part, key = row
    return table_prefix(kind, queue, part) + _TAIL[kind][0](key)


def read_tail(kind: int, raw: bytes) -> Any:
    """The key within its table, from what follows the table's prefix."""
    return _TAIL[kind][1](raw)


# --- messages -----------------------------------------------------------------------------------

_MESSAGE = Struct(">BQ14sBQQQIIQHHHHiiH")
_NON_PERSISTENT, _BODYLESS, _PRIORITY = 0x80, 0x40, 0x0F
"""In the byte of the priority: it is not persistent; and its body is gone (R82)."""


def write_message(m: Message) -> bytes:
    """A message with its payload."""
    key, value, headers, source = m.payload
    flags = 0 if m.persistent else _NON_PERSISTENT | (_BODYLESS if m.is_bodyless else 0)
    id_, group, source_, holders = m.id.encode(), m.group.encode(), source.encode(), b""
    if m.holders:
        holders = "\0".join(m.holders).encode()
    head = _MESSAGE.pack(
        VERSION, m.sequence, m.position.to_bytes(_POSITION_BYTES, "big"), m.priority | flags,
        m.enqueued_ms, m.expires_at_ms, m.due_ms, m.attempts, m.handovers, m.size_bytes,
        len(id_), len(group), len(source_), len(holders),
        -1 if key is None else len(key), -1 if value is None else len(value), len(headers),
    )  # fmt: skip
    body = (head, id_, group, source_, holders, key or b"", value or b"")
    if not headers:
        return b"".join(body)
    return b"".join(body) + write_headers(headers)


def write_headers(headers: Headers) -> bytes:
    """Name and value of each, with their lengths; a header's value may be null."""
    out = bytearray()
    for name, value in headers:
        raw = name.encode()
        out += _U64.pack(len(raw) << 32 | (0xFFFFFFFF if value is None else len(value)))
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
        if value_bytes == 0xFFFFFFFF:
            headers.append((name, None))
        else:
            headers.append((name, raw[at : at + value_bytes]))
            at += value_bytes
    return tuple(headers)


_RECORD = Struct(">QQQBiiHH")


def write_record(record: InRecord) -> bytes:
    """A consumed record that has to wait (R90)."""
    topic, key, value = record.topic.encode(), record.key, record.value
    head = _RECORD.pack(
        record.partition, record.offset, record.timestamp, record.timestamp_type,
        -1 if key is None else len(key), -1 if value is None else len(value), len(topic),
        len(record.headers),
    )  # fmt: skip
    return b"".join((head, topic, key or b"", value or b"", write_headers(record.headers)))


def read_record(raw: bytes) -> tuple[Any, ...]:
    """The inverse of `write_record`: the fields of an `InRecord`, in their order."""
    partition, offset, timestamp, kind, *lengths, header_count = _RECORD.unpack_from(raw)
    at = _RECORD.size
    parts = []
    for length in (lengths[2], *lengths[:2]):
        parts.append(None if length < 0 else raw[at : at + length])
        at += max(length, 0)
    topic, key, value = parts
    headers = _read_headers(raw, at, header_count)
    return topic.decode(), partition, offset, timestamp, kind, key, value, headers  # type: ignore[union-attr]


def read_message(raw: bytes) -> Message:
    """The inverse of `write_message`."""
    (
        version, sequence, position, priority, enqueued_ms, expires_at_ms, due_ms, attempts,
        handovers, size_bytes, id_len, group_len, source_len, holders_len, key_len, value_len,
        header_count,
    ) = _MESSAGE.unpack_from(raw)  # fmt: skip
    if version != VERSION:
        raise ValueError(f"a stored message of version {version}; this program knows {VERSION}")
    at = _MESSAGE.size
    parts = []
    for length in (id_len, group_len, source_len, holders_len, key_len, value_len):
        parts.append(None if length < 0 else raw[at : at + length])
        at += max(length, 0)
    id_, group, source, holders, key, value = parts
    headers = _read_headers(raw, at, header_count)
    payload = Payload(key, value, headers, source.decode())  # type: ignore[union-attr]
    return Message(
        id_.decode(), sequence, int.from_bytes(position, "big"), priority & _PRIORITY, enqueued_ms,  # type: ignore[union-attr]
        expires_at_ms, due_ms, group.decode(), attempts, handovers,  # type: ignore[union-attr]
        tuple(holders.decode().split("\0")) if holders else (), size_bytes, payload,
        priority < _NON_PERSISTENT, bool(priority & _BODYLESS),
    )  # fmt: skip


# The high bits of a delivery's first number, which is below 2**63: it has an xid; it is an orphan.
_HAS_XID, _ORPHAN = 1 << 63, 1 << 62


def _write_delivery(delivery: Delivery) -> bytes:
    consumer, number, xid = delivery.consumer.encode(), delivery.number, b""
    if delivery.xid:
        raw = delivery.xid.encode()
        xid = _U16.pack(len(raw)) + raw
        number |= _HAS_XID | (_ORPHAN if delivery.is_orphan else 0)
    head = _U64.pack(number) + _U64.pack(delivery.handed_ms << 16 | len(consumer))
    return b"".join((head, consumer, xid, write_message(delivery.message)))


def _message_of_delivery(raw: bytes) -> tuple[int, str]:
    """Where the message of a stored delivery begins, and the delivery's xid."""
    end = 16 + (_U64.unpack_from(raw, 8)[0] & 0xFFFF)
    if not raw[0] & 0x80:
        return end, ""
    start = end + _U16.size
    end = start + _U16.unpack_from(raw, end)[0]
    return end, raw[start:end].decode()


def _read_delivery(raw: bytes) -> Delivery:
    number, rest = _U64.unpack_from(raw)[0], _U64.unpack_from(raw, 8)[0]
    consumer = raw[16 : 16 + (rest & 0xFFFF)].decode()
    end, xid = _message_of_delivery(raw)
    message = read_message(raw[end:])
    is_orphan = bool(number & _ORPHAN)
    return Delivery(number & (_ORPHAN - 1), consumer, message, rest >> 16, xid, is_orphan)


_FLAGS_AT = Struct(">BQ14s").size


def without_body(key: bytes, value: bytes) -> bytes:
    """A row as the changelog has it: of a message that is not persistent all but its body (R82).

    `key`, `value`: of a stored row. What an address keeps and what waits for the decision about a
    distributed transaction stays whole.
    """
    kind = key[0]
    if kind not in (Kind.RING, Kind.SCHEDULED, Kind.DELIVERY):
        return value
    at = _message_of_delivery(value)[0] if kind == Kind.DELIVERY else 0
    if not value[at + _FLAGS_AT] & _NON_PERSISTENT:
        return value
    message = read_message(value[at:])
    payload = Payload(None, None, (), message.payload.source)
    return value[:at] + write_message(message._replace(payload=payload, is_bodyless=True))


_OPERATION = Struct(">QH")


def _write_operation(operation: Operation) -> bytes:
    queue, message = operation.queue.encode(), operation.message
    head = _OPERATION.pack(operation.number, len(queue)) + queue
    return head if message is None else head + write_message(message)


def _read_operation(raw: bytes) -> Operation:
    number, length = _OPERATION.unpack_from(raw)
    end = _OPERATION.size + length
    message = read_message(raw[end:]) if len(raw) > end else None
    return Operation(raw[_OPERATION.size : end].decode(), message, number)


# --- the rest is small: JSON ----------------------------------------------------------------------


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _write_consumer(consumer: Consumer) -> bytes:
    return _json(
        [
            consumer.name, consumer.order, consumer.credit, consumer.priority, consumer.ack_mode,
            consumer.session, consumer.active, consumer.seen_ms, consumer.selector,
            consumer.credit_bytes,
        ]
    )  # fmt: skip


def _read_consumer(raw: bytes) -> Consumer:
    name, order, credit, priority, ack_mode, *rest = json.loads(raw)
    return Consumer(name, order, credit, priority, AckMode(ack_mode), *rest)


def _read_queue(raw: bytes) -> QueueRow:
    row = QueueRow(*json.loads(raw))
    return row._replace(
        counts=tuple(row.counts),
        level_counts=tuple(row.level_counts),
        cursors=tuple((level, order, run) for level, order, run in row.cursors),
        paused=tuple(row.paused),
        departures=(row.departures[0], row.departures[1]),
    )


def _read_address(raw: bytes) -> AddressRow:
    row = AddressRow(*json.loads(raw))
    return row._replace(members=tuple(row.members))


def _read_page(raw: bytes) -> tuple[tuple[str, bool], ...]:
    return tuple((message_id, evicted) for message_id, evicted in json.loads(raw))


def _read_pair(raw: bytes) -> tuple[int, int]:
    first, second = json.loads(raw)
    return first, second


_VALUES: dict[int, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    Kind.CLOCK: (_json, lambda raw: Clock(*json.loads(raw))),
    Kind.QUEUE: (_json, _read_queue),
    Kind.CONSUMER: (_write_consumer, _read_consumer),
    Kind.RING: (write_message, read_message),
    Kind.DELIVERY: (_write_delivery, _read_delivery),
    Kind.SCHEDULED: (write_message, read_message),
    Kind.EXPIRY: (_json, _read_pair),
    Kind.WAKE: (lambda value: b"1", lambda raw: True),
    Kind.GROUP: (_json, json.loads),
    Kind.SESSION: (lambda value: b"1", lambda raw: True),
    Kind.ENDED: (_json, _read_page),
    Kind.PAST: (_json, lambda raw: Past(*json.loads(raw))),
    Kind.DEPARTED: (str.encode, bytes.decode),
    Kind.ADDRESS: (_json, _read_address),
    Kind.RETAINED: (write_message, read_message),
    Kind.XID: (_json, lambda raw: XidRow(*json.loads(raw))),
    Kind.OPERATION: (_write_operation, _read_operation),
}


def write_value(kind: int, value: Any) -> bytes:
    """A row's value."""
    return _VALUES[kind][0](value)


def read_value(kind: int, raw: bytes) -> Any:
    """The inverse of `write_value`."""
    return _VALUES[kind][1](raw)
