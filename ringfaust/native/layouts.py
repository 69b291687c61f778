"""Writes `layouts.h`: the layouts that C shares with Python, from Python's own definitions.

`hatch_build.py` calls it whenever it compiles, so nothing is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.model import Counts, Delivery, Message
from ringfaust.core.queue import QueueRow
from ringfaust.core.table import Kind
from ringfaust.protocol import headers
from ringfaust.protocol.records import HEADER_BYTES, RECORD_BYTES, FetchedRecord, Payload
from ringfaust.protocol.stored_rows import deliveries, keys, messages, queue_rows, version

CLASSES: tuple[Any, ...] = (
    Message, Delivery, Payload, FetchedRecord, QueueRow,
    e.Added, e.Scheduled, e.Due, e.Dispatched, e.Acked, e.Evicted,
)  # fmt: skip
"""Named tuples whose fields C reads by index."""

HEADERS = (
    "QUEUE", "ID", "SEQUENCE", "PRIORITY", "ENQUEUED_MS", "SOURCE", "GROUP", "REASON", "CAUSE",
    "RING_SIZE", "READY", "TIME_MS", "AGE_MS", "HANDOVERS", "CONSUMER", "DELIVERY", "ATTEMPT",
    "REDELIVERED", "EXPIRES_AT_MS", "DELIVERY_MODE",
)  # fmt: skip
"""Headers that C writes, by their constants in `headers`."""

KINDS = (Kind.RING, Kind.DELIVERY, Kind.SCHEDULED, Kind.QUEUE)
"""Tables whose rows C encodes."""

NUMBERS = {
    "MESSAGE_VERSION": messages.VERSION,
    "NON_PERSISTENT": messages.NON_PERSISTENT,
    "BODYLESS": messages.BODYLESS,
    "PRIORITY_MASK": messages.PRIORITY_MASK,
    "NO_VALUE": messages.NO_VALUE,
    "DELIVERY_VERSION": version.VERSION_BYTE,
    "HAS_XID": deliveries.HAS_XID,
    "ORPHAN": deliveries.ORPHAN,
    "POSITION_BYTES": keys.POSITION_BYTES,
    "QUEUE_VERSION": queue_rows.VERSION_BYTE,
    "DATED_QUEUE_VERSION": queue_rows.DATED_VERSION_BYTE,
    "LEVELS": limits.PRIORITIES,
    "COUNTS": len(Counts().stored()),
    "MOST_HEADERS": limits.HEADERS,
    "RECORD_BYTES": RECORD_BYTES,
    "HEADER_BYTES": HEADER_BYTES,
} | {name: place for name, place in vars(queue_rows).items() if name.endswith(("_AT", "BITS"))}
"""What stored rows consist of. From `queue_rows`: the place of each number in a queue's row."""

_LONGEST_NAME = 63
"""Its length is one byte in a record."""


def header() -> str:
    """The text of `layouts.h`."""
    lines = ["/* Written by layouts.py. */"]
    for each in CLASSES:
        lines += _enumeration(_constant(each.__name__), each._fields, "FIELDS")
    lines += _enumeration("CLASS", [_constant(each.__name__) for each in CLASSES])
    lines += _macro("CLASS_TABLE", _classes())
    lines += _enumeration("H", HEADERS)
    lines += _macro("HEADER_TABLE", map(_header, HEADERS))
    lines.append(f'#define TOO_MANY_HEADERS "{headers.TOO_MANY_HEADERS}"')
    lines += [f"#define KIND_{kind.name} {kind.value}" for kind in KINDS]
    lines += [f"#define {name} {value}ULL" for name, value in NUMBERS.items()]
    return "\n".join(lines) + "\n"


def _constant(name: str) -> str:
    """The name of a class as C writes constants: FETCHED_RECORD."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _enumeration(prefix: str, names: Any, count: str = "COUNT") -> list[str]:
    members = ", ".join(f"{prefix}_{name.upper()}" for name in (*names, count))
    return [f"enum {{ {members} }};"]


def _macro(name: str, entries: Any) -> list[str]:
    return [f"#define {name} \\", *(f"    {entry}, \\" for entry in entries), ""]


def _classes() -> Iterator[str]:
    for each in CLASSES:
        name = each.__name__
        yield f'{{"{each.__module__}", "{name}", {_constant(name)}_FIELDS, NULL}}'


def _header(constant: str) -> str:
    """The name of a header as a record has it: behind its length, which Kafka writes doubled."""
    name: str = getattr(headers, constant)
    assert len(name) <= _LONGEST_NAME, name
    return f'{{"\\{2 * len(name):03o}{name}", {1 + len(name)}}}'
