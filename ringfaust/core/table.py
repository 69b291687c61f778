"""The tables of a partition: what the store holds, overlaid with uncommitted changes.

There are two kinds of table. `Rows` is read by key. `Ordered` is also read in key order and keeps a
**window** of decoded rows: every row up to an edge, and none beyond it. A ring can therefore be far
larger than memory: rows behind the edge stay in the store (or among the uncommitted changes) and
are read when the window is empty.

A row that is put and deleted within one batch is never written.

`writes` hands the changes of a batch to the host, and `committed` reports that they are durable and
in the store. The next batch may start in between; it reads the changes in flight as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Protocol

from ringfaust.core import limits

Key = Any
"""An int, a str, or a tuple of these; all keys of a table have the same type."""
Row = tuple[int, str, Any, Key]
"""(kind of table, queue, part of the table or 0, key)."""


class Kind(IntEnum):
    """The tables. Stored keys begin with the number of the kind: never reuse a number."""

    CLOCK = 1
    """One row: the time and the last numbers given."""
    QUEUE = 2
    """One row per queue: settings, counts, last numbers."""
    CONSUMER = 3
    """Attached consumers, by attach order."""
    RING = 4
    """Ready messages; part = 9 − priority, key = position."""
    DELIVERY = 5
    """Unsettled deliveries, by number."""
    SCHEDULED = 6
    """Scheduled messages, by (due time, sequence)."""
    EXPIRY = 7
    """When ready and scheduled messages expire, by (time, sequence)."""
    WAKE = 8
    """When a sweep has work for a queue, by (time, queue); at most one row per
    queue, and one per time without a queue, for distributed transactions."""
    GROUP = 9
    """Message groups that have a message or whose owner is remembered, by group."""
    SESSION = 10
    """Consumers of a session: part = session, key = (queue, consumer)."""
    ENDED = 11
    """Ended deliveries: part = consumer, key = page number."""
    PAST = 12
    """Consumers that have ever been attached, by name."""
    DEPARTED = 13
    """Names of detached consumers, by the number of the detach."""
    ADDRESS = 14
    """One row per address: settings, queues, bounds of the retained messages."""
    RETAINED = 15
    """Messages that an address retains for queues created later, by number."""
    XID = 16
    """Undecided distributed transactions, by order of begin."""
    OPERATION = 17
    """Operations of a transaction: part = its number, key = number of the operation."""
    IDLE_GROUP = 18
    """Message groups that have an owner but no message, in the order in which they lost it."""
    UNFINISHED = 19
    """At most one row: what is left of a command that did not fit into one transaction (R114)."""
    SENT_ID = 20
    """Ids of messages that a queue with a dedup window received, by id."""
    SENT_PAGE = 21
    """The same ids in the order in which they came; key = page number."""
    CONFIGURATION = 22
    """At most one row: the configuration that was applied last (R128)."""


TableWrites = tuple[int, str, Any, Mapping[Key, Any | None]]
"""Changes to one table: its kind, queue and part, and values by key. None deletes the row."""


class Store(Protocol):
    """The committed state, as the host stores it."""

    def get(self, row: Row) -> Any | None:
        """Return the value of the row, or None."""

    def scan(
        self, kind: int, queue: str, part: Any, after: Key | None, most: int
    ) -> Iterable[tuple[Key, Any]]:
        """Return up to `most` (key, value) pairs of a table, in order, with keys > `after`.

        Rows that nobody asks for are not decoded.
        """


class WriteSet:
    """What the tables of a partition share: the store, and which tables the batch changed."""

    __slots__ = (
        "cache_bytes",
        "cached_bytes",
        "dirty",
        "in_flight",
        "refill",
        "refill_bytes",
        "store",
    )

    def __init__(self, store: Store, refill: int = limits.REFILL) -> None:
        """`refill`: rows read from the store at a time."""
        self.store = store
        self.refill = refill
        self.refill_bytes = limits.REFILL_BYTES
        self.dirty: list[Rows] = []
        self.in_flight: list[Rows] = []
        self.cached_bytes = 0
        self.cache_bytes = limits.STEP_BYTES
        """How much `Ordered.walk` may decode and keep; the host sets it with each commit."""


class Rows:
    """A table that is read by key. It caches nothing beyond the batch."""

    __slots__ = ("write_set", "born", "changed", "in_flight", "is_dirty", "kind", "part", "queue")

    def __init__(self, write_set: WriteSet, kind: int, queue: str, part: Any = 0) -> None:
        self.write_set = write_set
        self.kind = kind
        self.queue = queue
        self.part = part
        self.born: dict[Key, Any] = {}
        """Rows put in this batch that the store does not have."""
        self.changed: dict[Key, Any | None] = {}
        """Rows put or deleted (None) in this batch that the store may have."""
        self.in_flight: dict[Key, Any | None] = {}
        """The changes of the previous batch, until the store has them."""
        self.is_dirty = False

    def _touch(self) -> None:
        self.is_dirty = True
        self.write_set.dirty.append(self)

    @property
    def is_stored(self) -> bool:
        """Whether the store has all changes."""
        return not (self.is_dirty or self.in_flight)

    def get(self, key: Key) -> Any | None:
        """Return the value of the row, or None."""
        value = self.born.get(key)
        if value is not None:
            return value
        if key in self.changed:
            return self.changed[key]
        if key in self.in_flight:
            return self.in_flight[key]
        return self.write_set.store.get((self.kind, self.queue, self.part, key))

    def put_new(self, key: Key, value: Any) -> None:
        """Put a row that the store does not have."""
        if not self.is_dirty:
            self._touch()
        if key in self.changed:  # deleted earlier in this batch
            self.changed[key] = value
        else:
            self.born[key] = value

    def put(self, key: Key, value: Any) -> None:
        """Put a row that the store may have."""
        if not self.is_dirty:
            self._touch()
        if key in self.born:
            self.born[key] = value
        else:
            self.changed[key] = value

    def delete(self, key: Key) -> None:
        """Delete a row."""
        if not self.is_dirty:
            self._touch()
        if self.born.pop(key, None) is None:
            self.changed[key] = None

    def writes(self) -> TableWrites:
        """Put the changes in flight and return them."""
        if not self.changed:
            self.in_flight, self.born = self.born, {}
        elif not self.born:
            self.in_flight, self.changed = self.changed, {}
        else:
            self.changed.update(self.born)
            self.in_flight, self.born, self.changed = self.changed, {}, {}
        self.is_dirty = False
        return self.kind, self.queue, self.part, self.in_flight

    def committed(self) -> None:
        """Note that the changes in flight are in the store."""
        self.in_flight = {}

    def scan(self, after: Key | None, most: int) -> list[tuple[Key, Any]]:
        """Return up to `most` rows in key order with keys > `after`, all changes included."""
        rows: list[tuple[Key, Any]] = []
        while True:
            found = dict(self.write_set.store.scan(self.kind, self.queue, self.part, after, most))
            cut = next(reversed(found)) if len(found) == most else None
            rows += self._merged(found, after, cut)
            if cut is None or len(rows) >= most:
                return rows[:most]
            after = cut

    def scan_all(self, after: Key | None, most: int) -> Iterator[tuple[Key, Any]]:
        """Yield all rows with keys > `after`, in order, read `most` at a time.

        Those that were read may be deleted meanwhile.
        """
        while rows := self.scan(after, most):
            yield from rows
            after = rows[-1][0]

    def _merged(
        self, found: dict[Key, Any], after: Key | None, cut: Key | None
    ) -> list[tuple[Key, Any]]:
        """Rows of the store in key order, with the changes; `cut`: ignore those behind it."""
        for changes in (self.in_flight, self.changed, self.born):
            for key, value in changes.items():
                if (after is None or key > after) and (cut is None or key <= cut):
                    found[key] = value
        return [(key, found[key]) for key in sorted(found) if found[key] is not None]


class Chunk:
    """Decoded rows that follow each other in a table, far behind its window."""

    __slots__ = ("after", "keys", "values")

    def __init__(self, after: Key | None, rows: list[tuple[Key, Any]]) -> None:
        self.after = after
        """The key before them; None: they are the first rows."""
        self.keys = [key for key, _ in rows]
        self.values = dict(rows)

    def next(self, after: Key | None) -> Key | None:
        """The lowest key > `after`, or None if that may be another row of the table."""
        keys = self.keys
        if not keys or (self.after is not None and (after is None or after < self.after)):
            return None
        index = 0 if after is None else bisect_right(keys, after)
        return keys[index] if index < len(keys) else None

    def has_room_for(self, key: Key) -> bool:
        """Whether a row with this key would be between them."""
        keys = self.keys
        return bool(keys) and key <= keys[-1] and (self.after is None or key > self.after)


class Ordered(Rows):
    """A table that is also read in key order, through a window of decoded rows."""

    __slots__ = (
        "_ahead",
        "_edge",
        "_gone",
        "_head",
        "_keys",
        "_reach",
        "_values",
        "_whole",
        "row_bytes",
        "weighs",
    )

    def __init__(
        self,
        write_set: WriteSet,
        kind: int,
        queue: str,
        part: Any = 0,
        *,
        fresh: bool,
        weighs: bool = False,
        row_bytes: int = 0,
    ) -> None:
        """Create the table, with an empty window.

        Args:
            write_set: of the partition.
            kind: kind of table.
            queue: name of the queue or address, or empty.
            part: part of the table, or 0.
            fresh: the store has no rows of this table.
            weighs: values have `size_bytes`, which count against the cache bound.
            row_bytes: what else a row counts; `ROW_BYTES` if it weighs.
        """
        super().__init__(write_set, kind, queue, part)
        self._keys: list[Key] = []
        """Keys of the window in order, starting at index `_head`."""
        self._head = 0
        self._values: dict[Key, Any] = {}
        self._whole = fresh
        """Whether the window holds all rows."""
        self._edge: Key | None = None
        """If not, the last key that the window covers; None if it covers no key."""
        self._gone: Key | None = None
        """There is no row up to this key: a ring leaves thousands of deleted rows at its head, and
        a read from the store would pass each of them. None: unknown."""
        self._reach = FIRST_REFILL
        """How many rows the next read from the store asks for."""
        self._ahead: Chunk | None = None
        """What a walk read last behind the window: the next one continues there."""
        self.weighs = weighs
        self.row_bytes = ROW_BYTES if weighs else row_bytes

    # --- reading ---------------------------------------------------------------------------------

    def first_key(self) -> Key | None:
        """Return the lowest key, or None if there is no row."""
        if self._head == len(self._keys) and not self._refill():
            return None
        return self._keys[self._head]

    def first(self) -> tuple[Key, Any] | None:
        """Return the row with the lowest key, or None."""
        key = self.first_key()
        return None if key is None else (key, self._values[key])

    def get(self, key: Key) -> Any | None:
        """Return the value of the row, or None; from the window if it covers the key."""
        value = self._values.get(key)
        if value is None and not self._covers(key):
            return super().get(key)
        return value

    def __iter__(self) -> Iterator[tuple[Key, Any]]:
        """Iterate over all rows in key order.

        Meanwhile rows may be deleted, and rows may be put before the current one.
        """
        key = self.first_key()
        while key is not None:
            value = self._values.get(key)
            if value is not None:
                yield key, value
            index = bisect_right(self._keys, key, self._head)
            if index == len(self._keys) and not self._whole:
                self._extend()
                index = bisect_right(self._keys, key, self._head)
            key = self._keys[index] if index < len(self._keys) else None

    def walk(self, after: Key | None = None) -> Iterator[tuple[Key, Any]]:
        """Iterate over the rows with keys > `after`, in order, however many there are (R114).

        Beyond the window, and once the decoded rows fill the cache, it keeps one chunk at a time;
        the last one also for the next walk, if the cache has room for it.
        Meanwhile the current row may be deleted, and rows may be put before it.
        """
        cache = self.write_set
        while (key := self._next_decoded(after)) is not None:
            yield key, self._values[key]
            after = key
        if self._whole:
            return
        if self._edge is not None and (after is None or after < self._edge):
            after = self._edge
        chunk = self._ahead or Chunk(after, [])
        while True:
            key = chunk.next(after)
            if key is None:
                rows, is_rest = self._read(after, cache.refill)
                if not rows:
                    return
                chunk, key = Chunk(after, rows), rows[0][0]
                if after == self._edge and cache.cached_bytes < cache.cache_bytes // 2:
                    self._keep(rows, is_rest)
                else:
                    self._keep_ahead(chunk)
            yield key, chunk.values[key]
            after = key

    def _next_decoded(self, after: Key | None) -> Key | None:
        """The lowest key > `after` in the window, which is filled first if it is empty."""
        if after is None:
            return self.first_key()
        if self._head == len(self._keys) and not self._refill():
            return None
        index = bisect_right(self._keys, after, self._head)
        return self._keys[index] if index < len(self._keys) else None

    # --- writing ---------------------------------------------------------------------------------

    def put_new(self, key: Key, value: Any) -> None:
        """Put a row that the store does not have."""
        # The same as in Rows, without the call: this is the hot path.
        if not self.is_dirty:
            self._touch()
        if key in self.changed:
            self.changed[key] = value
        else:
            self.born[key] = value
        if self._gone is not None and key <= self._gone:
            self._gone = None
        if self._whole or self._covers(key):
            self._insert(key, value)
        elif self._ahead is not None and self._ahead.has_room_for(key):
            self._drop_ahead()

    def put(self, key: Key, value: Any) -> None:
        """Put a row that may exist."""
        super().put(key, value)
        if self._gone is not None and key <= self._gone:
            self._gone = None
        if key in self._values:
            self.write_set.cached_bytes += self._weight(value) - self._weight(self._values[key])
            self._values[key] = value
        elif self._whole or self._covers(key):
            self._insert(key, value)
        elif self._ahead is not None and self._ahead.has_room_for(key):
            self._drop_ahead()

    def delete(self, key: Key) -> None:
        """Delete a row."""
        if not self.is_dirty:
            self._touch()
        if self.born.pop(key, None) is None:
            self.changed[key] = None
        value = self._values.pop(key, None)
        if value is None:
            if self._ahead is not None:
                self._delete_ahead(self._ahead, key)
            return
        self.write_set.cached_bytes -= self._weight(value)
        if self._keys[self._head] == key:
            self._gone = key
            self._head += 1
            if self._head > 4096 and self._head * 2 > len(self._keys):
                del self._keys[: self._head]
                self._head = 0
        else:
            del self._keys[bisect_left(self._keys, key, self._head)]

    def forget(self) -> None:
        """Free the window. Its rows are read from the store again when needed."""
        self.write_set.cached_bytes -= sum(map(self._weight, self._values.values()))
        self._drop_ahead()
        self._keys = []
        self._values = {}
        self._head = 0
        self._edge = None
        self._whole = False
        self._reach = FIRST_REFILL

    def shed(self, excess_bytes: int) -> None:
        """Drop rows from the far end until `excess_bytes` are free; keep the first row."""
        excess_bytes -= self._drop_ahead()
        stop = len(self._keys)
        target = self.write_set.cached_bytes - excess_bytes
        while stop > self._head + 1 and self.write_set.cached_bytes > target:
            stop -= 1
            self.write_set.cached_bytes -= self._weight(self._values.pop(self._keys[stop]))
        if stop < len(self._keys):
            self._edge = self._keys[stop - 1]
            self._keys = self._keys[self._head : stop]
            self._head = 0
            self._whole = False

    # --- behind the window -----------------------------------------------------------------------

    def _keep_ahead(self, chunk: Chunk) -> None:
        """Keep what a walk has read, if the cache has room for it."""
        self._drop_ahead()
        shared = self.write_set
        size_bytes = sum(map(self._weight, chunk.values.values()))
        if shared.cached_bytes + size_bytes <= shared.cache_bytes:
            shared.cached_bytes += size_bytes
            self._ahead = chunk

    def _drop_ahead(self) -> int:
        """Returns how many bytes that frees."""
        if self._ahead is None:
            return 0
        size_bytes = sum(map(self._weight, self._ahead.values.values()))
        self.write_set.cached_bytes -= size_bytes
        self._ahead = None
        return size_bytes

    def _delete_ahead(self, chunk: Chunk, key: Key) -> None:
        value = chunk.values.pop(key, None)
        if value is not None:
            del chunk.keys[bisect_left(chunk.keys, key)]
            self.write_set.cached_bytes -= self._weight(value)

    # --- the window ------------------------------------------------------------------------------

    def _covers(self, key: Key) -> bool:
        return self._whole or (self._edge is not None and key <= self._edge)

    def _insert(self, key: Key, value: Any) -> None:
        keys = self._keys
        if self._head == len(keys) or key > keys[-1]:
            keys.append(key)
        elif self._head and key < keys[self._head]:
            self._head -= 1
            keys[self._head] = key
        else:
            insort(keys, key, self._head)
        self._values[key] = value
        self.write_set.cached_bytes += self._weight(value)

    def _weight(self, value: Any) -> int:
        return self.row_bytes + value.size_bytes if self.weighs else self.row_bytes

    def _refill(self) -> bool:
        """Fill the empty window. Return whether there is a row."""
        self._keys.clear()
        self._head = 0
        if not self._whole:
            self._extend()
        return bool(self._keys)

    def _extend(self) -> None:
        """Read more rows into the window: each time more, up to `refill`.

        Once half of the cache is full, only a few: of many rings, each needs its oldest message.
        """
        shared = self.write_set
        most = min(self._reach, shared.refill)
        self._reach = 4 * most
        if shared.cached_bytes > shared.cache_bytes // 2:
            most = FIRST_REFILL
        self._keep(*self._read(self._gone if self._edge is None else self._edge, most))

    def _read(self, after: Key | None, most: int) -> tuple[list[tuple[Key, Any]], bool]:
        """The rows with keys > `after`, and whether these are all.

        It returns up to `most` of them, or as many as reach `refill_bytes`, and none only if
        there are no more.
        """
        shared = self.write_set
        reach = most
        while True:
            found, room = {}, shared.refill_bytes
            for key, value in shared.store.scan(self.kind, self.queue, self.part, after, reach):
                found[key] = value
                room -= self._weight(value)
                if room <= 0:
                    break
            cut = next(reversed(found)) if room <= 0 or len(found) == reach else None
            rows = self._merged(found, after, cut)
            if rows or cut is None:
                return rows[:most], cut is None and len(rows) <= most
            after = cut  # this batch has deleted them all
            reach = min(4 * reach, shared.refill)

    def _keep(self, rows: list[tuple[Key, Any]], is_rest: bool) -> None:
        """Add the rows that follow the edge to the window; `is_rest`: there are no more."""
        self._drop_ahead()  # they may be the same
        for key, value in rows:
            self._insert(key, value)
        if is_rest:
            self._whole = True
        else:
            self._edge = rows[-1][0]


FIRST_REFILL = 2
"""Rows read when a table is first read: of many small rings, most need only their oldest."""

ROW_BYTES = 600
"""Memory of a decoded message beyond its own bytes: measured on CPython 3.11, rounded up."""
TIMED_ROW_BYTES = 300
"""Memory of a row that says when something is due: its key and value are small tuples."""
