"""A worker locks its data directory, and says what is wrong with one that it cannot use."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringfaust.worker.store.data_dir import (
    BadDataDir,
    DataDirInUse,
    locked_data_dir,
    worker_identity,
)

HOLD = """
import os, signal, sys
from pathlib import Path
from ringfaust.worker.store.data_dir import locked_data_dir
with locked_data_dir(Path(sys.argv[1])):
    print("locked", flush=True)
    signal.pause()
"""


def test_a_second_worker_is_refused_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"
        with pytest.raises(DataDirInUse, match="set --data-dir, or stop the other") as refused:
            with locked_data_dir(tmp_path):
                pass
        assert refused.value.pid == str(first.pid)
        first.kill()
    with locked_data_dir(tmp_path):
        assert (tmp_path / "worker.lock").read_text() == f"{os.getpid()}\n"


def refusal(folder: Path) -> str:
    with pytest.raises(BadDataDir) as refused, locked_data_dir(folder):
        pass
    assert str(folder) in str(refused.value)
    return str(refused.value)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "must be a folder, not a file: choose another one" in refusal(tmp_path / "file")
    assert "must be a folder, not a file" in refusal(tmp_path / "file" / "data")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "Let the user that runs the worker write to it"),
        (errno.EROFS, "Choose another one with data_dir"),
        (errno.ENOSPC, "Make room on the disk"),
    ],
)
def test_a_folder_that_cannot_be_written_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def cannot(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number), str(tmp_path))

    monkeypatch.setattr("fcntl.flock", cannot)
    assert advice in refusal(tmp_path)
    monkeypatch.setattr(Path, "open", cannot)
    assert os.strerror(number) in refusal(tmp_path)


def test_a_worker_keeps_its_identity_and_a_copy_of_its_folder_is_another(tmp_path: Path) -> None:
    """R125. Two workers with one identity would shut each other out."""
    folder, copy = tmp_path / "data", tmp_path / "copy"
    mine = worker_identity(folder)
    assert worker_identity(folder) == mine
    assert mine.startswith(f"{socket.gethostname()[:64]}-")
    shutil.copytree(folder, copy)
    assert worker_identity(copy) != mine
    assert worker_identity(tmp_path / "other") not in (mine, worker_identity(copy))


def test_an_identity_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(BadDataDir, match="must be a folder"):
        worker_identity(tmp_path / "data")
