"""A sorted map of bytes, stored in few pages that are read only when needed.

A job's state lives in the JVM, and a call for one piece of it costs a tenth of a millisecond from
Python. So neighbouring rows travel together, some hundred in a page. A micro-batch reads the pages
it touches and writes those it changed, however much the rings hold.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import Protocol

from ringfaust.errors import UnknownRowVersion
from ringfaust.protocol.stored_rows import body_start, versioned

PAGE_BYTES = 64 * 1024
"""A page that has grown beyond this size is split."""

_DIRECTORY = 0
"""Number of the directory page, which lists the other pages in key order."""
_ENTRY = Struct(">IH")
_HEAD = Struct(">BI")
_ROW = Struct(">HI")
_VERSION = 1


class PageStore(Protocol):
    """Numbered pages, as the host stores them."""

    def get(self, number: int) -> bytes | None:
        """The page, or None."""

    def put(self, number: int, page: bytes) -> None:
        """Write a page."""

    def remove(self, number: int) -> None:
        """Remove an existing page."""


def rows_of(number: int, page: bytes) -> Mapping[bytes, bytes]:
    """The rows of one page of a map; none for its directory, and what its owner has put before."""
    return {} if number <= _DIRECTORY else _read_rows(page)


class _Page:
    """The rows from this page's first key up to the next page's first key."""

    __slots__ = ("changed", "first", "keys", "number", "rows")

    def __init__(self, number: int, first: bytes, rows: dict[bytes, bytes]) -> None:
        self.number = number
        self.first = first
        """Where it begins in the directory; this never changes."""
        self.rows = rows
        self.keys: list[bytes] | None = None
        """Sorted. None if keys were added or removed since they were last sorted."""
        self.changed = False

    def sorted_keys(self) -> list[bytes]:
        if self.keys is None:
            self.keys = sorted(self.rows)
        return self.keys


class PagedMap:
    """A `KeyValue` on top of pages. `flush` writes what `apply` has changed."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._next, self._firsts, self._numbers = _read_directory(store.get(_DIRECTORY))
        self._loaded: dict[int, _Page] = {}
        self._is_directory_changed = False

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return self._page(self._index(key)).rows.get(key)

    def items_from(self, key: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All items with keys >= `key`, in order, and < `end` if it is given.

        The map must not change meanwhile.
        """
        last = len(self._numbers) - 1 if end is None else self._index(end)
        for index in range(self._index(key), last + 1):
            page = self._page(index)
            keys = page.sorted_keys()
            until = None if end is None else bisect_left(keys, end)
            for found in keys[bisect_left(keys, key) : until]:
                yield found, page.rows[found]

    def apply(self, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put values and, where the value is None, delete keys, in order."""
        firsts = self._firsts
        page: _Page | None = None
        low: bytes = b""
        high: bytes | None = None
        for key, value in writes:
            # Writes arrive table by table, so most belong to the same page as the one before.
            if page is None or key < low or (high is not None and key >= high):
                index = self._index(key)
                page = self._page(index)
                low = firsts[index]
                high = firsts[index + 1] if index + 1 < len(firsts) else None
            rows = page.rows
            if value is not None:
                if key not in rows:
                    page.keys = None
                rows[key] = value
                page.changed = True
            elif rows.pop(key, None) is not None:
                page.keys = None
                page.changed = True

    def flush(self) -> None:
        """Write the changed pages, and the directory if the set of pages has changed."""
        for page in [page for page in self._loaded.values() if page.changed]:
            self._write(page)
        if self._is_directory_changed:
            self._is_directory_changed = False
            self._store.put(_DIRECTORY, _write_directory(self._next, self._firsts, self._numbers))

    def _index(self, key: bytes) -> int:
        """Which page, in key order, the key belongs to."""
        return bisect_right(self._firsts, key) - 1

    def _page(self, index: int) -> _Page:
        number = self._numbers[index]
        page = self._loaded.get(number)
        if page is None:
            rows = _read_rows(self._store.get(number))
            page = self._loaded[number] = _Page(number, self._firsts[index], rows)
        return page

    def _write(self, page: _Page) -> None:
        page.changed = False
        index = self._index(page.first)
        if not page.rows and index:
            self._drop(index)
            return
        parts = list(_split(page))
        page.rows = parts[0]
        page.keys = None
        self._store.put(page.number, _write_rows(page.rows))
        for offset, rows in enumerate(parts[1:], start=1):
            number = self._next
            self._next += 1
            first = next(iter(rows))
            self._firsts.insert(index + offset, first)
            self._numbers.insert(index + offset, number)
            self._is_directory_changed = True
            self._loaded[number] = _Page(number, first, rows)
            self._store.put(number, _write_rows(rows))

    def _drop(self, index: int) -> None:
        """Remove an empty page. Its key range joins the page before; the first page stays."""
        number = self._numbers.pop(index)
        self._is_directory_changed = True
        del self._firsts[index], self._loaded[number]
        self._store.remove(number)


def _split(page: _Page) -> Iterator[dict[bytes, bytes]]:
    """The page's rows in order, in as many parts as their size requires."""
    part: dict[bytes, bytes] = {}
    size = 0
    for key in page.sorted_keys():
        value = page.rows[key]
        if size > PAGE_BYTES:
            yield part
            part, size = {}, 0
        part[key] = value
        size += len(key) + len(value) + _ROW.size
    yield part


# --- stored bytes ---------------------------------------------------------------------------------


def _read_rows(page: bytes | None) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    if page is None:
        return rows
    at, end, size = body_start(page, "page"), len(page), _ROW.size
    unpack = _ROW.unpack_from
    while at < end:
        key_bytes, value_bytes = unpack(page, at)
        key_end = at + size + key_bytes
        rows[page[at + size : key_end]] = page[key_end : key_end + value_bytes]
        at = key_end + value_bytes
    return rows


def _write_rows(rows: dict[bytes, bytes]) -> bytes:
    pack = _ROW.pack
    parts = [versioned(b"")]
    for key, value in rows.items():
        parts += (pack(len(key), len(value)), key, value)
    return b"".join(parts)


def _read_directory(page: bytes | None) -> tuple[int, list[bytes], list[int]]:
    """The next free page number, and the first key and the number of each page."""
    if page is None:
        return _DIRECTORY + 2, [b""], [_DIRECTORY + 1]
    version, next_number = _HEAD.unpack_from(page)
    if version != _VERSION:
        raise UnknownRowVersion("page directory", version, _VERSION)
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
