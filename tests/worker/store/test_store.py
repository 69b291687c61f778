"""A damaged database is set aside, never served, and never a traceback."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Cache, ReadOptions

import ringfaust.worker.store.rocks as stores
from ringfaust.protocol.stored_rows import after_prefix
from ringfaust.worker.store.rocks import (
    RocksStore,
    StoreDamaged,
    StoreLocked,
    StoreUnusable,
    open_rocks_store,
    set_aside,
)

BATCHES = 1_500
"""Enough, with a small memtable, that the first files are compacted and their logs deleted."""


WRITER = """\
import os, sys
from pathlib import Path
from rocksdict import Cache
import ringfaust.worker.store.rocks as stores

stores.MEMTABLE_BYTES = 64 * 1024
store = stores.RocksStore(Path(sys.argv[1]), Cache(1 << 20))
for number in range(int(sys.argv[2])):
    is_only_copy = str(number) == sys.argv[3]
    row = b"row-%06d" % number, os.urandom(200)
    store.apply([row], number + 1, 0, is_only_copy=is_only_copy)
os._exit(0)
"""


def write_until_killed(path: Path, batches: int = BATCHES, only_copy: int = -1) -> None:
    """Write batches in a process that ends without closing the store.

    `only_copy`: the number of a batch that the changelog does not have.
    Not a fork of this process: RocksDB's threads would be missing in it, and a flush would hang.
    """
    numbers = map(str, (batches, only_copy))
    subprocess.run([sys.executable, "-c", WRITER, path, *numbers], check=True)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as a killed worker leaves it: table files and a manifest."""
    path = tmp_path_factory.mktemp("killed") / "partition-0"
    write_until_killed(path)
    return path


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed, tmp_path / "partition-0")


def reopened(path: Path) -> RocksStore:
    return open_rocks_store(path, Cache(1 << 20))


def is_complete(store: RocksStore) -> bool:
    """Whether the store has exactly the rows of the batches that it says it has."""
    rows = [key for key, _ in store.items_from(b"row-")]
    return rows == [b"row-%06d" % number for number in range(store.applied[0])]


def set_aside_folders(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.set-aside-*"))


def flip(path: Path) -> None:
    """Change a byte in the middle of a file."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(bytes(raw))


def tables(folder: Path) -> list[Path]:
    """All of them: some may be left over from a compaction, and nobody reads those.

    One that a compaction has just begun is empty.
    """
    found = [path for path in folder.glob("*.sst") if path.stat().st_size]
    assert found
    return found


def manifest(folder: Path) -> Path:
    return next(folder.glob("MANIFEST-*"))


def test_an_undamaged_database_is_used(folder: Path) -> None:
    """The memtable is lost with the process: the changelog has its rows."""
    store = reopened(folder)
    assert 0 < store.applied[0] < BATCHES
    assert is_complete(store)
    assert not set_aside_folders(folder)


@pytest.mark.parametrize("only_copy", [0, 5, 9])
def test_what_the_changelog_lacks_survives_a_kill(tmp_path: Path, only_copy: int) -> None:
    """And with it what was written before and after it (R82)."""
    write_until_killed(tmp_path / "p", 10, only_copy)
    store = reopened(tmp_path / "p")
    assert store.applied[0] == 10
    assert is_complete(store)


def test_a_closed_database_has_everything(tmp_path: Path) -> None:
    store = reopened(tmp_path / "p")
    store.apply([(b"row-000000", b"x")], 1, 7)
    store.close()
    again = reopened(tmp_path / "p")
    assert again.applied == (1, 7)
    assert is_complete(again)


def test_no_log_is_written_and_an_old_memtable_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a partition with few messages does not replay days of its changelog after a kill."""
    store = reopened(tmp_path / "p")
    store.apply([(b"row", b"x" * 1_000)], 1, 0)
    assert not any(log.stat().st_size for log in store.path.glob("*.log"))
    assert not list(store.path.glob("*.sst"))
    store.close()
    monkeypatch.setattr(stores, "FLUSH_MS", -1)
    store = reopened(tmp_path / "old")
    store.apply([(b"row", b"x")], 1, 0)
    while not list(store.path.glob("*.sst")):
        time.sleep(0.01)
    store.close()


def delete_the_tables(folder: Path) -> None:
    for table in tables(folder):
        table.unlink()


def shorten_the_tables(folder: Path) -> None:
    for table in tables(folder):
        os.truncate(table, 100)


def delete_the_manifest(folder: Path) -> None:
    manifest(folder).unlink()


def delete_current(folder: Path) -> None:
    (folder / "CURRENT").unlink()


def empty_current(folder: Path) -> None:
    os.truncate(folder / "CURRENT", 0)


@pytest.mark.parametrize(
    "damage",
    [delete_the_tables, shorten_the_tables, delete_the_manifest, delete_current, empty_current],
)
def test_a_database_with_damaged_files_is_set_aside_when_it_is_opened(
    folder: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(folder)
    store = reopened(folder)
    assert store.applied == (0, 0)
    (kept,) = set_aside_folders(folder)
    (warning,) = caplog.messages
    assert str(folder) in warning
    assert kept.name in warning
    assert "is rebuilt from the changelog" in warning


@pytest.mark.parametrize("percent", range(0, 100, 10))
def test_a_manifest_without_its_end_never_opens_a_store_with_a_hole(
    folder: Path, percent: int
) -> None:
    """RocksDB accepts some of these. What is left then is the store as it once was."""
    os.truncate(manifest(folder), manifest(folder).stat().st_size * percent // 100)
    store = reopened(folder)
    assert is_complete(store)
    assert store.applied[0] == 0 or not set_aside_folders(folder)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of a worker whose database logged all batches."""
    path = tmp_path_factory.mktemp("logged") / "partition-0"
    write_until_killed(path, only_copy=0)
    return path


@pytest.mark.parametrize("percent", range(0, 100, 10))
def test_a_manifest_without_its_end_is_noticed_if_there_is_a_log(
    logged: Path, tmp_path: Path, percent: int
) -> None:
    """RocksDB would leave out what is between an older version of its files and the log."""
    folder = shutil.copytree(logged, tmp_path / "partition-0")
    os.truncate(manifest(folder), manifest(folder).stat().st_size * percent // 100)
    store = reopened(folder)
    assert is_complete(store)
    assert store.applied == (0, 0)
    assert set_aside_folders(folder)


@pytest.mark.parametrize("state", ["killed", "logged"])
def test_a_manifest_that_loses_its_end_after_the_store_was_closed_leaves_no_hole(
    state: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = shutil.copytree(request.getfixturevalue(state), tmp_path / "partition-0")
    reopened(folder).close()
    newest = max(folder.glob("MANIFEST-*"))
    os.truncate(newest, newest.stat().st_size // 2)
    store = reopened(folder)
    assert is_complete(store)
    assert store.applied[0] == 0 or not set_aside_folders(folder)


@pytest.mark.parametrize("how", ["read", "scanned", "written"])
def test_damage_that_is_found_later_is_an_error_and_the_next_start_sets_the_folder_aside(
    folder: Path, how: str
) -> None:
    for table in tables(folder):
        flip(table)
    store = reopened(folder)
    with pytest.raises(StoreDamaged, match="The folder is set aside"):
        if how == "scanned":
            is_complete(store)
        if how == "read":
            for number in range(BATCHES):
                store.get(b"row-%06d" % number)
        if how == "written":
            with pytest.MonkeyPatch.context() as patch:  # as after a compaction that failed
                patch.setattr(store, "_db", _FailedCompaction(store._db))  # noqa: SLF001
                store.apply([(b"row", b"x")], 1, 1)
    store.close()
    assert not set_aside_folders(folder)
    assert reopened(folder).applied == (0, 0)
    assert len(set_aside_folders(folder)) == 1


class _FailedCompaction:
    def __init__(self, database: object) -> None:
        self.get = database.get  # type: ignore[attr-defined]

    def write(self, batch: object) -> None:
        raise Exception("Corruption: block checksum mismatch: stored = 1, computed = 2")


def test_a_store_found_damaged_is_set_aside_and_replaced_in_the_same_process(folder: Path) -> None:
    for table in tables(folder):
        flip(table)
    store = reopened(folder)
    with pytest.raises(StoreDamaged):
        is_complete(store)
    store.set_aside("it is damaged")
    assert reopened(folder).applied == (0, 0)


def test_a_database_that_is_open_elsewhere_is_not_damaged(folder: Path) -> None:
    first = reopened(folder)
    with pytest.raises(StoreLocked, match="Give each worker its own data_dir"):
        reopened(folder)
    assert is_complete(first)


@pytest.mark.parametrize(
    "text",
    [
        "IO error: No space left on device: While appending to file: /d/000009.log: No space left",
        "IO error: While open a file for lock: /d/LOCK: Permission denied",
        "IO error: Read-only file system: While open a file for appending: /d/000009.log",
    ],
)
def test_a_full_or_read_only_disk_is_not_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def cannot_open(*_: object) -> None:
        raise Exception(text)

    monkeypatch.setattr(stores, "Rdict", cannot_open)
    with pytest.raises(StoreUnusable, match="Make room on the disk, or correct the permissions"):
        reopened(folder)
    assert not set_aside_folders(folder)


def test_a_write_beyond_a_limit_is_not_damage(folder: Path) -> None:
    """The limit simulates a full disk. Once it is lifted, the database is as complete as before."""
    store = reopened(folder)
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StoreUnusable, match="File too large"):
            for number in range(store.applied[0], 2 * BATCHES):
                store.apply([(b"row-%06d" % number, os.urandom(200))], number + 1, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    store.close()
    assert is_complete(reopened(folder))
    assert not set_aside_folders(folder)


def test_a_store_of_an_earlier_version_is_used(folder: Path) -> None:
    """It notes only the offset and the time."""
    store = reopened(folder)
    store._db.put(stores._APPLIED_KEY, stores.write_json([BATCHES, 7]))  # noqa: SLF001
    store._db.close()  # noqa: SLF001
    assert reopened(folder).applied == (BATCHES, 7)


def test_only_the_newest_folders_that_were_set_aside_are_kept(tmp_path: Path) -> None:
    made = []
    for number in range(4):
        path = tmp_path / "partition-1"
        path.mkdir()
        (path / str(number)).touch()
        made.append(set_aside(path, "of a test"))
    (tmp_path / "partition-10.set-aside-1").mkdir()
    assert set_aside_folders(tmp_path / "partition-1") == made[-stores.SET_ASIDE_KEPT :]
    assert (tmp_path / "partition-10.set-aside-1").exists()


def test_a_read_after_the_close_is_a_bug_and_no_damage(folder: Path) -> None:
    store = reopened(folder)
    applied = store.applied
    store.close()
    with pytest.raises(stores.DbClosedError):
        store.get(b"row")
    assert reopened(folder).applied == applied


def test_a_scan_does_not_visit_the_deleted_rows_behind_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full ring leaves one for each message: to pass 200,000 of them took 80 ms each second."""

    def impatient() -> ReadOptions:
        options = ReadOptions()
        options.set_max_skippable_internal_keys(10)  # more of them are an error
        return options

    monkeypatch.setattr("ringfaust.worker.store.rocks.ReadOptions", impatient)
    store = reopened(tmp_path / "partition-0")
    rows = [(b"table-a", b"1"), (b"table-b", b"2"), *((b"tablf-%04d" % n, b"") for n in range(99))]
    store.apply(rows, 1, 0)
    store.apply([(key, None) for key, _ in rows[2:]], 2, 0)
    end = after_prefix(b"table-")
    assert [*store.items_from(b"table-", end)] == rows[:2]
    assert [*store.items_from(b"table-b", end)] == rows[1:2]
    with pytest.raises(StoreDamaged):
        [*store.items_from(b"table-")]
    store.close()


def test_compaction_runs_only_when_the_worker_leaves_the_processor_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If not, it takes turns with the thread that decides, where both cores are busy."""
    monkeypatch.setattr(stores, "MEMTABLE_BYTES", 64 * 1024)
    store = RocksStore(tmp_path / "p", Cache(1 << 20))
    for number in range(BATCHES):
        store.apply([(b"row-%06d" % (number % 100), os.urandom(2_000))], number + 1, 0)
        if _niceness("rocksdb:low") == {19}:
            break
    assert _niceness("rocksdb:low") == {19}
    assert _niceness("rocksdb:high") == {os.getpriority(os.PRIO_PROCESS, 0)}
    store.close()


def _niceness(thread: str) -> set[int]:
    """Of this process' threads of that name."""
    found = set()
    for stat in Path("/proc/self/task").glob("*/stat"):
        name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        if name == thread:
            found.add(int(rest.split()[16]))
    return found
