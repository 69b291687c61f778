"""The state as sorted bytes: one `Store` for every host, over any sorted key-value map."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from ringfaust.core.table import Key, Row
from ringfaust.protocol import stored_rows as stored


class KeyValue(Protocol):
    """A sorted map of bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None."""

    def items_from(self, key: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the items with keys >= `key`, in order, and < `end` if it is given."""


class ByteStore:
    """A core `Store` over a `KeyValue`: encodes keys and decodes rows."""

    def __init__(self, data: KeyValue) -> None:
        self._data = data

    def get(self, row: Row) -> Any | None:
        """Return the row's value, or None."""
        raw = self._data.get(stored.write_key(row))
        return None if raw is None else stored.read_value(row[0], raw)

    def scan(
        self, kind: int, queue: str, part: Any, after: Key | None, most: int
    ) -> Iterator[tuple[Key, Any]]:
        """Yield up to `most` (key, value) pairs in key order, from the first key > after."""
        prefix = stored.table_prefix(kind, queue, part)
        start = prefix if after is None else stored.write_key((kind, queue, part, after)) + b"\0"
        for key, raw in islice(self._data.items_from(start, stored.after_prefix(prefix)), most):
            yield stored.read_tail(kind, key[len(prefix) :]), stored.read_value(kind, raw)


class MemoryKeyValue:
    """A sorted map of bytes in memory."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None."""
        return self._values.get(key)

    def items_from(self, key: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the items with keys >= `key`, in order, and < `end` if it is given."""
        until = None if end is None else bisect_left(self._keys, end)
        for found in self._keys[bisect_left(self._keys, key) : until]:
            yield found, self._values[found]

    def apply(self, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put values and delete keys, in order. None deletes."""
        for key, value in writes:
            if value is not None:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value
            elif self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
