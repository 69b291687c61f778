"""A virtual RocksDB: a sorted map that can lose its last writes, or everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ringfaust.processor.row_store import MemoryKeyValue
from ringfaust.protocol.stored_rows import read_json, write_json
from ringfaust.worker.store.identity import IDENTITY_KEY, StoreIdentity

Writes = list[tuple[bytes, bytes | None]]
_REMEMBERED = 8


class _Database:
    """The database of one partition."""

    def __init__(self) -> None:
        self.rows = MemoryKeyValue()
        self.applied = (0, 0)
        self.undo: list[tuple[Writes, tuple[int, int]]] = []
        self.is_open = False


class Disk:
    """The databases of one worker."""

    def __init__(self) -> None:
        self._databases: dict[Path, _Database] = {}

    def database(self, path: Path) -> _Database:
        return self._databases.setdefault(path, _Database())

    def wipe(self, path: Path) -> None:
        self._databases.pop(path, None)

    def replace(self, application: str, cluster: str) -> None:
        """The folders come from elsewhere; their offsets happen to fit."""
        for database in self._databases.values():
            if database.applied[0]:
                identity = StoreIdentity(cluster, application, 0, "changelog-0")
                database.rows = MemoryKeyValue()
                database.rows.apply([(IDENTITY_KEY, write_json(list(identity)))])
                database.undo.clear()

    def lose_all_of(self, application: str) -> None:
        """Remove the folders that belong to an application."""
        for path, database in list(self._databases.items()):
            raw = database.rows.get(IDENTITY_KEY)
            if raw and read_json(raw, "identity")[1] == application:
                del self._databases[path]

    def lose_all(self) -> None:
        self._databases.clear()

    def lose_tail(self) -> None:
        """The last writes are lost: they were in the memtable (ADR 60)."""
        for database in self._databases.values():
            while database.undo:
                before, database.applied = database.undo.pop()
                database.rows.apply(before)

    def unlock(self) -> None:
        """The process that had them open has died."""
        for database in self._databases.values():
            database.is_open = False


class VirtualStore:
    """A `PartitionStore` on a virtual disk."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._database = disk.database(path)
        assert not self._database.is_open, f"{path} is open twice"
        self._database.is_open = True

    def get(self, key: bytes) -> bytes | None:
        return self._database.rows.get(key)

    def items_from(self, key: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        return self._database.rows.items_from(key, end)

    @property
    def applied(self) -> tuple[int, int]:
        return self._database.applied

    def apply(
        self,
        writes: Iterable[tuple[bytes, bytes | None]],
        next_offset: int,
        now_ms: int,
        *,
        is_only_copy: bool = False,
    ) -> None:
        database, writes = self._database, list(writes)
        before = [(key, database.rows.get(key)) for key in dict(writes)]
        database.undo = [*database.undo[1 - _REMEMBERED :], (before, database.applied)]
        database.rows.apply(writes)
        database.applied = (next_offset, now_ms)

    def close(self) -> None:
        self._database.is_open = False

    def wipe(self) -> None:
        self.close()
        self._disk.wipe(self.path)

    def set_aside(self, why: str) -> None:
        self.wipe()
