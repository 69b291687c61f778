"""The folder with a worker's databases and its identity: created and locked at its start."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ringfaust.errors import RingfaustError

_LOCK = "worker.lock"
_IDENTITY = "identity"
_ADVICE = {
    errno.EACCES: "Let the user that runs the worker write to it, or choose",
    errno.EPERM: "Let the user that runs the worker write to it, or choose",
    errno.EEXIST: "It must be a folder, not a file: choose",
    errno.ENOTDIR: "It must be a folder, not a file: choose",
    errno.ENOSPC: "Make room on the disk, or choose",
    errno.EDQUOT: "Make room on the disk, or choose",
    errno.ENOLCK: "It must be on a local disk: choose",
}


class BadDataDir(RingfaustError):
    """The data directory cannot be used. The message says why, and what to do. Nothing started.

    Attributes:
        folder: the data directory.
    """

    def __init__(self, folder: Path, error: OSError) -> None:
        advice = _ADVICE.get(error.errno or 0, "Choose")
        super().__init__(
            f"the data directory {folder} cannot be used: {error.strerror}. {advice} another one "
            "with data_dir in worker.yaml or with --data-dir."
        )
        self.folder = folder


class DataDirInUse(RingfaustError):
    """Another worker uses the data directory. Stop that one, or give this one its own.

    Attributes:
        folder: the data directory.
        pid: the process id of the other worker, as it wrote it.
    """

    def __init__(self, folder: Path, pid: str) -> None:
        super().__init__(
            f"the data directory {folder} is in use by another worker, with the process id {pid}. "
            "Each worker needs its own: set --data-dir, or stop the other worker."
        )
        self.folder = folder
        self.pid = pid


@contextmanager
def locked_data_dir(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock, which the system releases however the worker ends.

    Raises:
        BadDataDir: the folder cannot be created or written.
        DataDirInUse: another worker holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise BadDataDir(folder, error) from None
    with lock:
        try:
            _take(folder, lock)
        except OSError as error:
            raise BadDataDir(folder, error) from None
        yield


def worker_identity(folder: Path) -> str:
    """The name of the worker with this data directory, which outlives its process (R125).

    A copy of the folder is another worker: the name depends on the host and the path, too.

    Raises:
        BadDataDir: the folder cannot be created or written.
    """
    path = folder / _IDENTITY
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(f"{uuid.uuid4()}\n", encoding="utf-8")
        own = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadDataDir(folder, error) from None
    host = socket.gethostname()
    digest = hashlib.sha256(f"{own} {host} {folder.resolve()}".encode()).hexdigest()
    return f"{host[:64]}-{digest[:12]}"


def written_ms(folder: Path) -> dict[int, int]:
    """By partition with a database in the folder: when it was written last, in ms since 1970."""
    found = {}
    for path in folder.glob("partition-*"):
        number = path.name.removeprefix("partition-")
        if number.isascii() and number.isdigit():
            with suppress(OSError):  # the file is just being deleted
                times = [each.stat().st_mtime_ns for each in path.iterdir()]
                found[int(number)] = max(times, default=0) // 1_000_000
    return found


def _take(folder: Path, lock: TextIO) -> None:
    """Lock the file and write our process id to it.

    `filelock` would take an error of `flock` for another holder, and where a file system has no
    locks it would leave a file that outlives a killed worker. Here both are explained.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise DataDirInUse(folder, lock.read().strip() or "unknown") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
