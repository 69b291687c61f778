"""The state of one partition in RocksDB, one database each, with the changelog offset it reflects.

A store is never ahead of the committed changelog: a batch is applied after its transaction has been
committed, as one WriteBatch that also holds the new offset. After a kill between the two, replaying
the changelog from that offset repairs the store. Commits and recovery use the same `apply`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch

from ringfaust.errors import RingfaustError
from ringfaust.protocol.stored_rows import read_json, write_json

_APPLIED_KEY = b"\0applied"
_MEMTABLE_BYTES = 16 * 1024 * 1024
_OPEN_FILES = 256


class StoreLocked(RingfaustError):
    """Another process has the partition's database open.

    What to do: give each worker on a machine its own `data_dir`.
    """


class RocksStore:
    """A sorted map of bytes in a RocksDB database."""

    def __init__(self, path: Path, cache: Cache) -> None:
        """Open or create it.

        Raises:
            StoreLocked: another process has it open.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_MEMTABLE_BYTES)
        options.set_max_open_files(_OPEN_FILES)
        table = BlockBasedOptions()
        table.set_block_cache(cache)
        table.set_bloom_filter(10, block_based=False)
        options.set_block_based_table_factory(table)
        try:
            self._db = Rdict(str(path), options)
        except Exception as error:  # rocksdict raises a plain Exception with RocksDB's text
            if "lock" in str(error).lower():
                raise StoreLocked(f"{path} is in use by another worker: {error}") from None
            raise

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return cast("bytes | None", self._db.get(key))

    def items_from(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All items with keys >= `key`, in order."""
        return cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=key))

    @property
    def applied(self) -> tuple[int, int]:
        """The changelog offset after the last applied row, and when the changelog ended there.

        The offset is 0 for a new store. The time is in ms since 1970.
        """
        raw = self._db.get(_APPLIED_KEY)
        return tuple(read_json(raw, "applied")) if raw else (0, 0)

    def apply(
        self, writes: Iterable[tuple[bytes, bytes | None]], next_offset: int, now_ms: int
    ) -> None:
        """Put and delete rows in order, and store `applied` with them, atomically.

        Args:
            writes: keys and values; a value of None deletes.
            next_offset: the changelog offset after them.
            now_ms: a time, by this machine's clock, at which the changelog ended there.
        """
        batch = WriteBatch(raw_mode=True)
        for key, value in writes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(_APPLIED_KEY, write_json([next_offset, now_ms]))
        self._db.write(batch)

    def close(self) -> None:
        """Close it."""
        self._db.close()

    def wipe(self) -> None:
        """Close it and delete its files."""
        self.close()
        shutil.rmtree(self.path)
