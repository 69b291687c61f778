"""Packs records into Kafka's record batches (message format 2) as they are added.

No record is kept as Python objects until the commit. Records of evictions and deliveries are most
of what a worker writes, so their headers are not even built as a list: they are written as one text
whose constant parts are ready. `outputs` says what these headers are; tests compare both.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, Protocol

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.model import Message
from ringfaust.protocol import headers as h
from ringfaust.protocol.outputs import dispatched_record, evicted_record
from ringfaust.protocol.records import OutRecord, Payload

BATCH_HEADER_BYTES = 61
"""What precedes the records of a batch."""

# --- numbers --------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    """A whole number ≥ 0 as Kafka writes it: zigzag, seven bits a byte, the lowest first."""
    rest = number << 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_VARINTS: Final = tuple([_varint(number) for number in range(2_048)])
_READY: Final = len(_VARINTS)
_NULL: Final = b"\x01"
"""The length −1, in place of a key or value that is null."""


def _number(number: int) -> bytes:
    return _VARINTS[number] if number < _READY else _varint(number)


# --- headers --------------------------------------------------------------------------------------

_SHORT: Final = 64
"""A length below it takes one byte, which is ASCII."""


def _begins(name: str) -> tuple[str, ...]:
    """The beginning of a header, up to the length of its value, by that length."""
    assert len(name) < _SHORT
    return tuple([f"{chr(2 * len(name))}{name}{chr(2 * size)}" for size in range(_SHORT)])


_QUEUE: Final = _begins(h.QUEUE)
_ID: Final = _begins(h.ID)
_SEQUENCE: Final = _begins(h.SEQUENCE)
_ENQUEUED_MS: Final = _begins(h.ENQUEUED_MS)
_SOURCE: Final = _begins(h.SOURCE)
_GROUP: Final = _begins(h.GROUP)
_REASON: Final = _begins(h.REASON)
_CAUSE: Final = _begins(h.CAUSE)
_RING_SIZE: Final = _begins(h.RING_SIZE)
_READY_COUNT: Final = _begins(h.READY)
_TIME_MS: Final = _begins(h.TIME_MS)
_AGE_MS: Final = _begins(h.AGE_MS)
_HANDOVERS: Final = _begins(h.HANDOVERS)
_CONSUMER: Final = _begins(h.CONSUMER)
_DELIVERY: Final = _begins(h.DELIVERY)
_ATTEMPT: Final = _begins(h.ATTEMPT)
_EXPIRES_AT_MS: Final = _begins(h.EXPIRES_AT_MS)
_PRIORITY: Final = tuple([f"{_begins(h.PRIORITY)[1]}{n}" for n in range(limits.PRIORITIES)])
_REDELIVERED: Final = f"{_begins(h.REDELIVERED)[1]}1"
_NON_PERSISTENT: Final = f"{_begins(h.DELIVERY_MODE)[14]}non_persistent"


def _common(queue: str, message: Message, payload: Payload) -> str:
    """The headers of every output, as text; empty if a length takes more than one byte."""
    id_, source, group = message.id, payload.source, message.group
    longest = _SHORT - 1
    if len(id_) > longest or len(queue) > longest or len(source) > longest or len(group) > longest:
        return ""
    sequence, enqueued_ms = str(message.sequence), str(message.enqueued_ms)
    text = (
        f"{_QUEUE[len(queue)]}{queue}{_ID[len(id_)]}{id_}{_SEQUENCE[len(sequence)]}{sequence}"
        f"{_PRIORITY[message.priority]}{_ENQUEUED_MS[len(enqueued_ms)]}{enqueued_ms}"
        f"{_SOURCE[len(source)]}{source}"
    )
    return f"{text}{_GROUP[len(group)]}{group}" if group else text


def _pack_headers(headers: Iterable[tuple[str, Any]]) -> bytes:
    """Headers without their number. A value may be null."""
    parts: list[bytes] = []
    for name, value in headers:
        raw = name.encode()
        parts += (_number(len(raw)), raw)
        parts += (_NULL,) if value is None else (_number(len(value)), value)
    return b"".join(parts)


# --- batches --------------------------------------------------------------------------------------


class RecordBatch:
    """The records of one batch, behind room for its header."""

    def __init__(self) -> None:
        self.data = bytearray(BATCH_HEADER_BYTES)
        self.count = 0
        self.time_ms = 0
        """The time of all its records, which retention goes by."""


class RecordBatches:
    """Records for one topic, in as many batches as they need."""

    def __init__(self, batch_bytes: int) -> None:
        """`batch_bytes`: a batch is closed before it becomes larger, unless by one record."""
        self._batch_bytes = batch_bytes
        self._last = RecordBatch()
        self.batches = [self._last]

    def __len__(self) -> int:
        return sum([batch.count for batch in self.batches])

    def append(self, record: OutRecord, /) -> None:
        """Pack one more record."""
        key, value, headers = record
        if headers:
            self._add(key, value, _number(len(headers)) + _pack_headers(headers))
        else:
            self._add(key, value, b"\0")

    def append_rows(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Pack records without headers: keys and values."""
        for key, value in rows:
            self._add(key, value, b"\0")

    def append_evicted(self, effect: e.Evicted) -> None:
        """The same as `append(evicted_record(effect))`."""
        queue, message, reason, cause, ring_size, ready, at_ms, form = effect
        payload: Payload = message.payload
        text = _common(queue, message, payload)
        if not text or form != "full" or len(cause) >= _SHORT:
            self.append(evicted_record(effect))
            return
        ring, left, now = str(ring_size), str(ready), str(at_ms)
        age, handovers = str(at_ms - message.enqueued_ms), str(message.handovers)
        text = (
            f"{text}{_REASON[len(reason)]}{reason}{_CAUSE[len(cause)]}{cause}"
            f"{_RING_SIZE[len(ring)]}{ring}{_READY_COUNT[len(left)]}{left}{_TIME_MS[len(now)]}{now}"
            f"{_AGE_MS[len(age)]}{age}{_HANDOVERS[len(handovers)]}{handovers}"
        )
        if text.isascii():
            self._add_text(payload, 14 if message.group else 13, text)
        else:
            self.append(evicted_record(effect))

    def append_dispatched(self, effect: e.Dispatched) -> None:
        """The same as `append(dispatched_record(effect))`."""
        queue, delivery = effect
        message = delivery.message
        payload: Payload = message.payload
        consumer = delivery.consumer
        text = _common(queue, message, payload)
        if not text or len(consumer) >= _SHORT:
            self.append(dispatched_record(effect))
            return
        number, attempt, handovers = (
            str(delivery.number), str(message.attempts), str(message.handovers)
        )  # fmt: skip
        text = (
            f"{text}{_CONSUMER[len(consumer)]}{consumer}{_DELIVERY[len(number)]}{number}"
            f"{_ATTEMPT[len(attempt)]}{attempt}{_HANDOVERS[len(handovers)]}{handovers}"
        )
        count = 11 if message.group else 10
        if message.handovers > 1:
            text += _REDELIVERED
            count += 1
        if message.expires_at_ms:
            expires = str(message.expires_at_ms)
            text += f"{_EXPIRES_AT_MS[len(expires)]}{expires}"
            count += 1
        if not message.persistent:
            text += _NON_PERSISTENT
            count += 1
        if text.isascii():
            self._add_text(payload, count, text)
        else:
            self.append(dispatched_record(effect))

    def _add_text(self, payload: Payload, count: int, text: str) -> None:
        """Pack a record with the producer's headers, and `count` of ringfaust's as text."""
        key, value, kept, _ = payload
        raw = text.encode("ascii")
        if kept:
            self._add(key, value, _number(len(kept) + count) + _pack_headers(kept) + raw)
        else:
            self._add(key, value, _number(count) + raw)

    def _add(self, key: bytes | None, value: bytes | None, headers: bytes) -> None:
        """Pack a record; `headers` begin with their number."""
        rest = (
            _NULL if key is None else _number(len(key)) + key,
            _NULL if value is None else _number(len(value)),
            value or b"",
            headers,
        )
        last = self._last
        body = b"".join((b"\0\0", _number(last.count), *rest))  # no attributes, no time of its own
        size = _number(len(body))
        if not last.count:
            last.time_ms = last.time_ms or time.time_ns() // 1_000_000
        elif len(last.data) + len(size) + len(body) > self._batch_bytes:
            following = RecordBatch()
            following.time_ms = last.time_ms
            self._last = last = following
            self.batches.append(last)
            body = b"".join((b"\0\0\0", *rest))
            size = _number(len(body))
        last.data += size + body
        last.count += 1


class RecordBuffer(Protocol):
    """Collects the output records of a batch for one topic: a list, or `RecordBatches`."""

    def append(self, record: OutRecord, /) -> None:
        """Add a record."""

    def __len__(self) -> int:
        """The number of records."""


def append_evicted(buffer: RecordBuffer, effect: e.Evicted) -> None:
    """Add the record of an evicted message."""
    if isinstance(buffer, RecordBatches):
        buffer.append_evicted(effect)
    else:
        buffer.append(evicted_record(effect))


def append_dispatched(buffer: RecordBuffer, effect: e.Dispatched) -> None:
    """Add the record of a delivery."""
    if isinstance(buffer, RecordBatches):
        buffer.append_dispatched(effect)
    else:
        buffer.append(dispatched_record(effect))
