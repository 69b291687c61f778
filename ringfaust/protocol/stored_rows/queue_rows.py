"""The stored layout of a queue's row.

Version 1 is JSON. Version 2 has a bit for each number, then the numbers that are not zero, the
round-robin cursors, and the settings and pauses in JSON: most numbers are zero, and thousands of
queues share the same settings. Version 3 adds to the JSON when settings were set live; only queues
that know it have it, and only from feature level 2 on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct, unpack_from
from typing import Any

from ringfaust.core.limits import PRIORITIES
from ringfaust.core.model import Counts
from ringfaust.core.queue import QueueRow
from ringfaust.protocol.stored_rows.version import body_start, to_json

VERSION = 2
VERSION_BYTE = 0x80 + VERSION
DATED_VERSION = 3
DATED_VERSION_BYTE = 0x80 + DATED_VERSION
_KNOWN = 4_096
"""Texts and sets of bits that are cached: few differ."""

BITS = 64
SEQUENCE_AT, ORDERS_AT, WAKE_AT, EXPIRING_AT, ATTACHED_AT, DEPARTURES_AT = 0, 1, 2, 3, 4, 5
SIZE_AT, NON_PERSISTENT_AT, GROUPS_AT, CURSORS_AT, SENT_BOUNDS_AT = 7, 8, 9, 12, 13
LEVELS_AT, COUNTS_AT = 20, 30
"""The bit of each number, or of the first of several, counted from the highest."""
_COUNTS = len(Counts().stored())
_CURSOR = Struct(">iQQ")
_Items = tuple[tuple[str, object], ...]


def write_queue(row: QueueRow) -> bytes:
    """Encode what is stored of a queue."""
    cursors = row.cursors
    numbers = [
        row.sequence, row.orders, row.wake_ms, row.expiring, row.attached, *row.departures,
        row.size_bytes, row.non_persistent, *(row.groups or (0, 0, 0)), len(cursors),
        *row.sent_bounds, 0, 0, 0, 0, 0,  # room for more, below LEVELS_AT
        *row.level_counts, *row.counts,
    ]  # fmt: skip
    bits, known = 0, []
    for number in numbers:
        bits <<= 1
        if number:
            bits |= 1
            known.append(number)
    bits <<= BITS - len(numbers)
    version = DATED_VERSION_BYTE if row.set_ms else VERSION_BYTE
    raw = _layout(len(known)).pack(version, bits, *known)
    if cursors:
        raw += b"".join([_CURSOR.pack(*cursor) for cursor in cursors])
    return raw + queue_texts(row.settings, row.applied, row.paused, row.set_ms)


@lru_cache(BITS)
def _layout(count: int) -> Struct:
    """Version, bits, and as many numbers."""
    return Struct(f">BQ{count}Q")


def queue_texts(
    settings: Mapping[str, object],
    applied: Mapping[str, object],
    paused: tuple[str, ...],
    set_ms: Mapping[str, int],
) -> bytes:
    """The settings and pauses of a queue, in JSON."""
    dates = tuple(set_ms.items())
    return _texts(tuple(settings.items()), tuple(applied.items()), paused, dates)


@lru_cache(_KNOWN)
def _texts(settings: _Items, applied: _Items, paused: tuple[str, ...], dates: _Items) -> bytes:
    texts = [dict(settings), dict(applied), paused]
    return to_json([*texts, dict(dates)] if dates else texts).encode()


def read_queue(raw: bytes) -> QueueRow:
    """Decode what is stored of a queue, of any version.

    Raises:
        UnknownRowVersion: a newer ringfaust wrote it.
    """
    if not raw or raw[0] not in (VERSION_BYTE, DATED_VERSION_BYTE):
        return _as_queue(json.loads(raw[body_start(raw, "QUEUE", DATED_VERSION) :]))
    places = _places(int.from_bytes(raw[1:9], "big"))
    numbers = [0] * BITS
    for place, number in zip(places, unpack_from(f">{len(places)}Q", raw, 9), strict=True):
        numbers[place] = number
    at = 9 + 8 * len(places)
    cursors: list[tuple[int, int, int]] = []
    for _ in range(numbers[CURSORS_AT]):
        cursors.append(_CURSOR.unpack_from(raw, at))
        at += _CURSOR.size
    settings, applied, paused, set_ms = _read_texts(raw[at:])
    return QueueRow(
        settings, applied, tuple(numbers[COUNTS_AT : COUNTS_AT + _COUNTS]),
        tuple(numbers[LEVELS_AT : LEVELS_AT + PRIORITIES]), numbers[SEQUENCE_AT],
        numbers[ORDERS_AT], tuple(cursors), paused, numbers[WAKE_AT], numbers[EXPIRING_AT],
        numbers[ATTACHED_AT], (numbers[DEPARTURES_AT], numbers[DEPARTURES_AT + 1]),
        numbers[SIZE_AT], numbers[NON_PERSISTENT_AT],
        tuple(numbers[GROUPS_AT : GROUPS_AT + 3]) if numbers[GROUPS_AT] else (),
        (numbers[SENT_BOUNDS_AT], numbers[SENT_BOUNDS_AT + 1]), set_ms,
    )  # fmt: skip


@lru_cache(_KNOWN)
def _places(bits: int) -> tuple[int, ...]:
    """Which numbers are not zero. The first number has the highest bit."""
    return tuple(place for place in range(BITS) if bits >> BITS - 1 - place & 1)


@lru_cache(_KNOWN)
def _read_texts(raw: bytes) -> tuple[Any, Any, tuple[str, ...], Any]:
    """Settings, applied settings, pauses and dates. Nobody changes them: a queue gets new ones."""
    settings, applied, paused, *dates = json.loads(raw)
    return settings, applied, tuple(paused), dates[0] if dates else {}


def _as_queue(fields: Any) -> QueueRow:
    row: Any = QueueRow(*fields)  # JSON has lists where the row has tuples
    made: QueueRow = row._replace(
        counts=tuple(row.counts),
        level_counts=tuple(row.level_counts),
        cursors=tuple((level, order, run) for level, order, run in row.cursors),
        paused=tuple(row.paused),
        departures=(row.departures[0], row.departures[1]),
        groups=tuple(row.groups),
    )
    return made
