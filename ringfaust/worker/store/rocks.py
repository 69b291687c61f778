"""The state of one partition in RocksDB, one database each, with the changelog offset it reflects.

A store is never ahead of the committed changelog: a batch is applied after its transaction has been
committed, as one WriteBatch that also holds the new offset. After a kill, replaying the changelog
from that offset repairs the store. Commits and recovery use the same `apply`.

The changelog is the state, and the database only a copy of it. So RocksDB keeps no log of its own,
unless it has what the changelog lacks (ADR 60), and a folder that is damaged is set aside, and the
partition rebuilt from the changelog.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Env,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from ringfaust.errors import RingfaustError
from ringfaust.protocol.stored_rows import read_json, write_json
from ringfaust.worker.interfaces import StopsWorker

log = logging.getLogger(__name__)

SET_ASIDE_KEPT = 2
"""How many folders of a partition that were set aside are kept. Older ones are deleted."""

_APPLIED_KEY = b"\0applied"
_DAMAGE_NOTE = "DAMAGED"
"""A file in the folder, with the reason, so that the next start sets the folder aside."""
MEMTABLES = 2
"""Each partition fills one while another is written to disk. It is RocksDB's default."""
MEMTABLE_BYTES = 32 * 1024 * 1024
"""Smaller ones cost more compaction."""
FLUSH_MS = 600_000
"""How old a memtable gets. After a kill, what it had is replayed from the changelog."""
_OPEN_FILES = 256
_IN_USE = re.compile(r"While lock file|lock hold by")
_NOT_ITS_FILES = re.compile(
    r"No space left|quota exceeded|Read-only file system|Permission denied|not permitted|"
    r"Too many open files|File too large|Cannot allocate memory|Not a directory"
)
"""What RocksDB says if the machine is at fault, and not the database."""


def _with_compaction_last() -> Env:
    """RocksDB's threads: compaction takes the CPU only when the worker leaves it idle.

    If it falls too far behind, RocksDB slows the writes.
    """
    env = Env()
    env.lower_thread_pool_cpu_priority()
    return env


class StoreLocked(StopsWorker):
    """Another process has the partition's database open.

    What to do: give each worker on a machine its own `data_dir`.
    """


class StoreDamaged(RingfaustError):
    """Files of a partition's database are missing or damaged.

    What to do: nothing, if it happens once: the folder is set aside, and the partition is rebuilt
    from the changelog. If it happens again, check the disk.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the database {path} is damaged: {reason}. The folder is set aside, and the partition "
            "rebuilt from the changelog. If it happens again, check the disk"
        )
        self.reason = reason


class StoreUnusable(StopsWorker):
    """The machine does not let the worker use a partition's database: a full disk, for example.

    What to do: the message names what is wrong; correct it and start the worker again.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the database {path} cannot be used: {reason}. Make room on the disk, or correct the "
            "permissions or limits that the message names, and start the worker again"
        )


def set_aside(path: Path, why: str) -> Path:
    """Rename a partition's folder: it can be examined but is not used. Returns its new name.

    Its database must be closed. Logs one warning, and deletes all but the newest `SET_ASIDE_KEPT`
    folders of the partition that were set aside.

    Args:
        path: the folder.
        why: what is wrong with it, as the end of a sentence.
    """
    now = datetime.now(UTC)
    kept_as = path.with_name(f"{path.name}.set-aside-{now:%Y%m%dT%H%M%S.%fZ}")
    path.rename(kept_as)
    log.warning(
        "%s is not used and was set aside as %s, because %s. The partition is rebuilt from the "
        "changelog",
        path, kept_as.name, why,
    )  # fmt: skip
    for old in sorted(path.parent.glob(f"{path.name}.set-aside-*"))[:-SET_ASIDE_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return kept_as


def open_rocks_store(path: Path, cache: Cache) -> RocksStore:
    """Open or create a store. A damaged one is set aside, and a new one takes its place.

    Raises:
        StoreLocked: another process has it open.
        StoreUnusable: the disk is full or the folder not writable, for example.
    """
    try:
        return RocksStore(path, cache)
    except StoreDamaged as error:
        set_aside(path, f"it is damaged ({error.reason})")
        return RocksStore(path, cache)


class RocksStore:
    """A sorted map of bytes in a RocksDB database."""

    def __init__(self, path: Path, cache: Cache) -> None:
        """Open or create it.

        Raises:
            StoreLocked: another process has it open.
            StoreDamaged: files are missing or damaged. What can only be found by reading them all
                is raised later, by the other methods.
            StoreUnusable: the disk is full or the folder not writable, for example.
        """
        self.path = path
        self._applied: tuple[int, int] | None = None
        """What the last write noted, as far as it was read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        manifest = _manifest(path)
        if (note := path / _DAMAGE_NOTE).exists():
            raise StoreDamaged(path, note.read_text("utf-8", errors="replace"))
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_env(_with_compaction_last())
        options.set_write_buffer_size(MEMTABLE_BYTES)
        options.set_compression_type(DBCompressionType.lz4())  # less time than snappy
        options.set_max_open_files(_OPEN_FILES)
        table = BlockBasedOptions()
        table.set_block_cache(cache)
        table.set_bloom_filter(10, block_based=False)
        options.set_block_based_table_factory(table)
        try:
            self._db = Rdict(str(path), options)
        except Exception as error:  # rocksdict raises a plain Exception with RocksDB's text
            raise _translated(path, error) from None
        unlogged: Any = WriteOptions()  # whose attributes the stubs take for methods
        unlogged.disable_wal = True
        self._db.set_write_options(unlogged)
        self._is_logging = False
        self._flush_at_s = time.monotonic() + FLUSH_MS / 1000
        try:
            self._check_manifest(manifest)
        except StoreDamaged:
            self.close()
            raise

    def get(self, key: bytes) -> bytes | None:
        """The value, or None.

        Raises:
            StoreDamaged: the value cannot be read.
        """
        try:
            return cast("bytes | None", self._db.get(key))
        except Exception as error:
            self._fail(error)

    def items_from(self, key: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All items with keys >= `key`, in order, and < `end` if it is given.

        Raises:
            StoreDamaged: the next item cannot be read.
        """
        options = ReadOptions()
        if end is not None:
            # Without it, the cursor would look for the row after the last one, past every deleted
            # row on the way: 80 ms for 200,000.
            options.set_iterate_upper_bound(end)
        # Not `Rdict.items`: it ends silently at a block that cannot be read.
        cursor: Any = self._db.iter(options)
        try:
            cursor.seek(key)
            while cursor.valid():
                yield cursor.key(), cursor.value()
                cursor.next()
            cursor.status()
        except Exception as error:
            cursor = None  # the traceback would keep it, and with it the database open
            self._fail(error)

    @property
    def applied(self) -> tuple[int, int]:
        """The changelog offset after the last applied row, and when the changelog ended there.

        The offset is 0 for a new store. The time is in ms since 1970.
        """
        if self._applied is None:
            raw = self.get(_APPLIED_KEY)
            next_offset, now_ms, *_ = read_json(raw, "applied") if raw else (0, 0)
            self._applied = (next_offset, now_ms)
        return self._applied

    def apply(
        self,
        writes: Iterable[tuple[bytes, bytes | None]],
        next_offset: int,
        now_ms: int,
        *,
        is_only_copy: bool = False,
    ) -> None:
        """Put and delete rows in order, and store `applied` with them, atomically.

        Args:
            writes: keys and values; a value of None deletes.
            next_offset: the changelog offset after them.
            now_ms: a time, by this machine's clock, at which the changelog ended there.
            is_only_copy: RocksDB logs this batch and all later ones, since they have what the
                changelog lacks.

        Raises:
            StoreDamaged: RocksDB has found damage meanwhile.
            StoreUnusable: the disk is full, for example.
        """
        batch = WriteBatch(raw_mode=True)
        for key, value in writes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        try:
            if is_only_copy and not self._is_logging:
                self._db.flush()  # a log without what comes before it would leave a hole
                self._db.set_write_options(WriteOptions())
                self._is_logging = True
            manifest = _manifest(self.path) if self._is_logging else ()
            batch.put(_APPLIED_KEY, write_json([next_offset, now_ms, *manifest]))
            self._db.write(batch)
            if (now_s := time.monotonic()) > self._flush_at_s:
                self._db.flush(wait=False)
                self._flush_at_s = now_s + FLUSH_MS / 1000
        except Exception as error:
            self._fail(error)
        self._applied = (next_offset, now_ms)

    def close(self) -> None:
        """Close it. An error is only logged: RocksDB repeats here what it reported before."""
        try:
            self._db.close()
        except Exception as error:
            log.debug("%s: %s", self.path, error)

    def wipe(self) -> None:
        """Close it and delete its files."""
        self.close()
        shutil.rmtree(self.path)

    def set_aside(self, why: str) -> None:
        """Close it and set its folder aside; see the function of the same name."""
        self.close()
        set_aside(self.path, why)

    def _check_manifest(self, found: Manifest) -> None:
        """Compare the manifest that was found at the start with what the last logged write noted.

        RocksDB accepts a manifest that has lost its end. It then opens an older version of its
        files and replays the newest log on top of it: the changes between the two are missing.
        """
        raw = self.get(_APPLIED_KEY)
        noted = Manifest(*read_json(raw, "applied")[2:]) if raw else Manifest()
        if noted > found:
            raise StoreDamaged(
                self.path,
                f"its manifest was number {noted.number} with {noted.size:,} bytes, and is number "
                f"{found.number} with {found.size:,} bytes now",
            )

    def _fail(self, error: Exception) -> NoReturn:
        """Raise an error of RocksDB as one of ours, and note damage for the next start."""
        if isinstance(error, DbClosedError):
            raise error  # a bug of ours, and no damage
        failure = _translated(self.path, error)
        if isinstance(failure, StoreDamaged):
            with suppress(OSError):
                (self.path / _DAMAGE_NOTE).write_text(failure.reason, "utf-8")
        raise failure from None


class Manifest(NamedTuple):
    """RocksDB's list of its files: it only grows, and each opening begins one with a new number."""

    number: int = 0
    size: int = 0


def _manifest(path: Path) -> Manifest:
    """The manifest of a database; that of a new or damaged one has the number 0."""
    try:
        name = (path / "CURRENT").read_text("ascii").strip()
        return Manifest(int(name.removeprefix("MANIFEST-")), (path / name).stat().st_size)
    except (OSError, ValueError):
        return Manifest()


def _translated(path: Path, error: Exception) -> RingfaustError:
    """One of our errors for one of RocksDB's."""
    text = " ".join(str(error).split())
    if _IN_USE.search(text) and "Permission denied" not in text:
        return StoreLocked(
            f"{path} is in use by another worker: {text}. Give each worker its own data_dir"
        )
    if _NOT_ITS_FILES.search(text):
        return StoreUnusable(path, text)
    return StoreDamaged(path, text)
