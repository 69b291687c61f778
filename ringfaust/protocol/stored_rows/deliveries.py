"""The stored layout of a delivery: its number, consumer and transaction in front of the message."""

from __future__ import annotations

from struct import Struct

from ringfaust.core.model import Delivery
from ringfaust.core.table import Kind
from ringfaust.protocol.stored_rows.messages import (
    read_message,
    without_message_body,
    write_message,
)
from ringfaust.protocol.stored_rows.version import VERSION_BYTE, body_start

_U16 = Struct(">H")
_DELIVERY_BODY = Struct(">QQ")
_DELIVERY = Struct(">BQQ")
"""With the version byte in front."""

# High bits of a delivery's number, which is below 2**56: it has an xid; it is an orphan.
HAS_XID, ORPHAN = 1 << 63, 1 << 62


def write_delivery(delivery: Delivery) -> bytes:
    """Encode a delivery with its message."""
    consumer, number, xid = delivery.consumer.encode(), delivery.number, b""
    if delivery.xid:
        raw = delivery.xid.encode()
        xid = _U16.pack(len(raw)) + raw
        number |= HAS_XID | (ORPHAN if delivery.is_orphan else 0)
    head = _DELIVERY.pack(VERSION_BYTE, number, delivery.handed_ms << 16 | len(consumer))
    return b"".join((head, consumer, xid, write_message(delivery.message)))


def _message_start(raw: bytes, consumer_at: int, number: int, consumer_bytes: int) -> int:
    """Where the message in a stored delivery begins, behind its consumer and xid."""
    end = consumer_at + consumer_bytes
    if number & HAS_XID:
        end += _U16.size + _U16.unpack_from(raw, end)[0]
    return end


def read_delivery(raw: bytes) -> Delivery:
    """Decode a delivery.

    Raises:
        UnknownRowVersion: a newer ringfaust wrote it.
    """
    start = body_start(raw, "DELIVERY")
    number, rest = _DELIVERY_BODY.unpack_from(raw, start)
    start += _DELIVERY_BODY.size
    consumer_end = start + (rest & 0xFFFF)
    end = _message_start(raw, start, number, rest & 0xFFFF)
    xid = raw[consumer_end + _U16.size : end].decode()
    message = read_message(raw[end:])
    consumer = raw[start:consumer_end].decode()
    is_orphan = bool(number & ORPHAN)
    return Delivery(number & (ORPHAN - 1), consumer, message, rest >> 16, xid, is_orphan)


def without_body(key: bytes, value: bytes) -> bytes:
    """A stored row as the changelog has it: a non-persistent message without its body (R82).

    Messages that an address retains, and messages that wait for the decision about a distributed
    transaction, keep their bodies.
    """
    kind = key[0]
    if kind in (Kind.RING, Kind.SCHEDULED):
        return without_message_body(value)
    if kind != Kind.DELIVERY:
        return value
    start = body_start(value, "DELIVERY")
    number, rest = _DELIVERY_BODY.unpack_from(value, start)
    at = _message_start(value, start + _DELIVERY_BODY.size, number, rest & 0xFFFF)
    return value[:at] + without_message_body(value[at:])
