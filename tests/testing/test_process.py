"""Processes that tests and scenarios start, kill and check."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.testing.process import Process, WorkerFailed


def test_a_process_that_is_restarted_is_not_missed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    process = Process(["version"], log)
    with pytest.raises(WorkerFailed, match="is not started"):
        process.check()
    process.start()
    with process.restarting():
        process.check()
    assert process.pid
    process.kill()
    with pytest.raises(WorkerFailed, match="is not started"):
        process.check()


def test_a_process_that_has_ended_is_killed_without_an_error(tmp_path: Path) -> None:
    process = Process(["nonsense"], tmp_path / "log")
    process.start()
    with pytest.raises(WorkerFailed, match="exit code 2"):
        while True:
            process.check()
    process.kill()
    with pytest.raises(WorkerFailed, match="is not started"):
        process.check()
