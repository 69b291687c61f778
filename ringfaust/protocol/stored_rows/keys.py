"""Keys of stored rows: kind (1 byte), queue, NUL, a part of the table, and the rest by kind.

Whole numbers are big-endian, so the order of the bytes is the order of the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from ringfaust.core.table import Kind, Row

_U64 = Struct(">Q")
POSITION_BYTES = 14
"""105 bits: see PLAIN in core/model.py."""


def table_prefix(kind: int, queue: str, part: Any) -> bytes:
    """The bytes that begin every key of one table, or of one part (`part`) of it."""
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


def after_prefix(prefix: bytes) -> bytes:
    """The first bytes after all keys that begin with the prefix of a table."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


_WHOLE = frozenset((
    Kind.CLOCK, Kind.QUEUE, Kind.WAKE, Kind.ADDRESS, Kind.XID, Kind.UNFINISHED, Kind.CONFIGURATION,
))  # fmt: skip
"""Tables of the whole partition: the key follows the kind at once."""


def _wake_key(key: tuple[int, str]) -> bytes:
    return _U64.pack(key[0]) + key[1].encode()


def _member_key(key: tuple[str, str]) -> bytes:
    return b"%b\0%b" % (key[0].encode(), key[1].encode())


def _read_member(raw: bytes) -> tuple[str, str]:
    queue, consumer = raw.split(b"\0")
    return queue.decode(), consumer.decode()


def _position(key: int) -> bytes:
    return key.to_bytes(POSITION_BYTES, "big")


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
    Kind.IDLE_GROUP: (_U64.pack, _read_u64),
    Kind.UNFINISHED: (lambda key: b"", lambda raw: 0),
    Kind.SENT_ID: (str.encode, bytes.decode),
    Kind.SENT_PAGE: (_U64.pack, _read_u64),
    Kind.CONFIGURATION: (lambda key: b"", lambda raw: 0),
}


def write_key(row: Row) -> bytes:
    """Encode a row's key."""
    kind, queue, part, key = row
    return table_prefix(kind, queue, part) + _TAIL[kind][0](key)


def tail_writer(kind: int) -> Callable[[Any], bytes]:
    """The function that encodes keys of a kind within their tables."""
    return _TAIL[kind][0]


def read_tail(kind: int, raw: bytes) -> Any:
    """Decode the key within its table, given the bytes that follow `table_prefix`."""
    return _TAIL[kind][1](raw)
