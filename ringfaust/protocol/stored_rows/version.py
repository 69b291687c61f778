"""The version byte of a stored row, and rows from before there was one.

The first byte of a row's value is 0x80 + the version of that kind's layout: 0x81 is version 1,
0xBF the last one possible. A message (a row of RING, SCHEDULED or RETAINED, and the message within
a DELIVERY or OPERATION) has had a version of its own from the start: its first byte is the plain
number 1.

Commit 6d179b1 and those before it wrote the other rows without a version. The body is the same,
so version 1 only puts a byte in front. A byte from 0x81 to 0xBF cannot begin an old row:

- CLOCK, QUEUE, CONSUMER, EXPIRY, GROUP, ENDED, PAST, ADDRESS and XID are JSON, as are the positions
  row, Spark's list of waiting topics and the changelog offset in RocksDB. All JSON that Python
  writes is ASCII. WAKE and SESSION are the one character `1`; Spark's note of its last start is
  decimal digits.
- IDLE_GROUP, UNFINISHED, SENT_ID, SENT_PAGE and CONFIGURATION came after the versions.
- DEPARTED is a consumer's name in UTF-8. A character begins with a byte below 0x80 or above 0xC1;
  0x80 to 0xBF only continue one.
- DELIVERY begins with the highest byte of its number. The number stays below 2**56, since a
  partition that delivers a million messages a second reaches it after 2,000 years. Two high bits
  are flags: an xid, and with it perhaps an orphan. So the byte is 0x00, 0x80 or 0xC0.
- OPERATION begins with the highest byte of a delivery's number or of a count: 0x00.
- A record that waits in a Spark job begins with the highest byte of a partition's number: 0x00.
- A page of a Spark job begins with the high byte of the length of its first key. Names limit a key
  to a few thousand bytes, so the byte is below 0x10. A page without rows is empty.
"""

from __future__ import annotations

import json
from typing import Any

from ringfaust.errors import UnknownRowVersion

_UNVERSIONED = 0x80
_LAST = 0xBF
_VERSION = 1
VERSION_BYTE = _UNVERSIONED + _VERSION
"""First byte of a row of version 1."""
_VERSION_BYTES = bytes((VERSION_BYTE,))

to_json = json.JSONEncoder(separators=(",", ":")).encode
"""A value as JSON."""


def versioned(body: bytes) -> bytes:
    """A row of version 1 with that body."""
    return _VERSION_BYTES + body


def body_start(raw: bytes, row: str, newest: int = _VERSION) -> int:
    """Where the body of a row of version 1 begins: 1, or 0 for a row without a version byte.

    Args:
        raw: the stored value.
        row: the kind of row, for the error.
        newest: the newest version that is known of this kind.

    Raises:
        UnknownRowVersion: a newer ringfaust wrote the row.
    """
    first = raw[0] if raw else 0
    if first == VERSION_BYTE:
        return 1
    if VERSION_BYTE < first <= _LAST:
        raise UnknownRowVersion(row, first - _UNVERSIONED, newest)
    return 0


def write_json(value: Any) -> bytes:
    """A row of version 1 whose body is JSON."""
    return _VERSION_BYTES + to_json(value).encode()


def read_json(raw: bytes, row: str, newest: int = _VERSION) -> Any:
    """The inverse of `write_json`; for the error: the kind of row, and its newest known version.

    Raises:
        UnknownRowVersion: a newer ringfaust wrote the row.
    """
    return json.loads(raw[body_start(raw, row, newest) :])
