"""A sorted map of bytes in few pages: a directory and leaves, each read when it is first needed.

A job's state lives in the JVM, and each call for a piece of it costs a tenth of a millisecond from
Python. So rows that stand together travel together, some hundred in a leaf: a micro-batch asks for
the leaves that it touches and writes back those that it changed, whatever the rings hold.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Protocol

LEAF_BYTES = 64 * 1024
"""A leaf that has grown beyond this is split into halves as large as it may be."""

_DIRECTORY = 0
_ENTRY = Struct(">IH")
_HEAD = Struct(">BI")
_ROW = Struct(">HI")
_VERSION = 1


class Pages(Protocol):
    """Numbered pages, as the host keeps them."""

    def get(self, number: int) -> bytes | None:
        """The page, or None."""

    def put(self, number: int, page: bytes) -> None:
        """Write a page."""

    def remove(self, number: int) -> None:
        """Drop a page that is there."""


class _Leaf:
    """Rows from its first key to the next leaf's."""

    __slots__ = ("changed", "keys", "number", "rows")

    def __init__(self, number: int, rows: dict[bytes, bytes]) -> None:
        self.number = number
        self.rows = rows
        self.keys: list[bytes] | None = None
        """Sorted; None where keys came or went since."""
        self.changed = False

    def sorted_keys(self) -> list[bytes]:
        if self.keys is None:
            self.keys = sorted(self.rows)
        return self.keys


class Leaves:
    """A `KeyValue` over pages; what `apply` changes is written by `flush`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._next, self._firsts, self._numbers = _read_directory(pages.get(_DIRECTORY))
        self._open: dict[int, _Leaf] = {}

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return self._leaf(self._index(key)).rows.get(key)

    def items_from(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All items with keys >= `key`, in order. Not to be changed meanwhile."""
        for index in range(self._index(key), len(self._numbers)):
            leaf = self._leaf(index)
            keys = leaf.sorted_keys()
            for found in keys[bisect_left(keys, key) :]:
                yield found, leaf.rows[found]

    def apply(self, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put and delete, in order."""
        firsts = self._firsts
        leaf: _Leaf | None = None
        low: bytes = b""
        high: bytes | None = None
        for key, value in writes:
            # Writes come table by table: most go to the leaf of the one before.
            if leaf is None or key < low or (high is not None and key >= high):
                index = self._index(key)
                leaf = self._leaf(index)
                low = firsts[index]
                high = firsts[index + 1] if index + 1 < len(firsts) else None
            rows = leaf.rows
            if value is not None:
                if key not in rows:
                    leaf.keys = None
                rows[key] = value
                leaf.changed = True
            elif rows.pop(key, None) is not None:
                leaf.keys = None
                leaf.changed = True

    def flush(self) -> None:
        """Write the leaves that changed, and the directory if there are others now."""
        before = list(self._numbers)
        for leaf in [leaf for leaf in self._open.values() if leaf.changed]:
            self._write(leaf)
        if self._numbers != before:
            self._pages.put(_DIRECTORY, _write_directory(self._next, self._firsts, self._numbers))

    # --- leaves ----------------------------------------------------------------------------------

    def _index(self, key: bytes) -> int:
        return bisect_right(self._firsts, key) - 1

    def _leaf(self, index: int) -> _Leaf:
        number = self._numbers[index]
        leaf = self._open.get(number)
        if leaf is None:
            leaf = self._open[number] = _Leaf(number, _read_leaf(self._pages.get(number)))
        return leaf

    def _write(self, leaf: _Leaf) -> None:
        leaf.changed = False
        index = self._numbers.index(leaf.number)
        if not leaf.rows and index:
            self._drop(index)
            return
        parts = list(_split(leaf))
        leaf.rows = parts[0]
        leaf.keys = None
        self._pages.put(leaf.number, _write_leaf(leaf.rows))
        for offset, rows in enumerate(parts[1:], start=1):
            number = self._next
            self._next += 1
            self._firsts.insert(index + offset, next(iter(rows)))
            self._numbers.insert(index + offset, number)
            self._open[number] = _Leaf(number, rows)
            self._pages.put(number, _write_leaf(rows))

    def _drop(self, index: int) -> None:
        """Its keys belong to the leaf before it from now on; the first leaf always stays."""
        number = self._numbers.pop(index)
        del self._firsts[index], self._open[number]
        self._pages.remove(number)


def _split(leaf: _Leaf) -> Iterator[dict[bytes, bytes]]:
    """Its rows in order, in as many parts as they need."""
    part: dict[bytes, bytes] = {}
    size = 0
    for key in leaf.sorted_keys():
        value = leaf.rows[key]
        if size > LEAF_BYTES:
            yield part
            part, size = {}, 0
        part[key] = value
        size += len(key) + len(value) + _ROW.size
    yield part


# --- pages as bytes -------------------------------------------------------------------------------


def _read_leaf(page: bytes | None) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    if page is None:
        return rows
    at, end, size = 0, len(page), _ROW.size
    unpack = _ROW.unpack_from
    while at < end:
        key_bytes, value_bytes = unpack(page, at)
        key_end = at + size + key_bytes
        rows[page[at + size : key_end]] = page[key_end : key_end + value_bytes]
        at = key_end + value_bytes
    return rows


def _write_leaf(rows: dict[bytes, bytes]) -> bytes:
    pack = _ROW.pack
    parts: list[bytes] = []
    for key, value in rows.items():
        parts += (pack(len(key), len(value)), key, value)
    return b"".join(parts)


def _read_directory(page: bytes | None) -> tuple[int, list[bytes], list[int]]:
    """The next free number, and first key and number of each leaf."""
    if page is None:
        return _DIRECTORY + 2, [b""], [_DIRECTORY + 1]
    version, next_number = _HEAD.unpack_from(page)
    if version != _VERSION:
        raise ValueError(f"a state of layout {version}; this program knows {_VERSION}")
    firsts, numbers = [], []
    at = _HEAD.size
    while at < len(page):
        number, length = _ENTRY.unpack_from(page, at)
        at += _ENTRY.size
        firsts.append(page[at : at + length])
        numbers.append(number)
        at += length
    return next_number, firsts, numbers


def _write_directory(next_number: int, firsts: list[bytes], numbers: list[int]) -> bytes:
    entries = (
        _ENTRY.pack(number, len(first)) + first
        for first, number in zip(firsts, numbers, strict=True)
    )
    return _HEAD.pack(_VERSION, next_number) + b"".join(entries)
