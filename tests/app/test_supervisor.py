"""What the supervisor of `--processes` does with a process that hangs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import ringfaust
from ringfaust.compiled import python
from ringfaust.supervisor import REFUSED, Supervisor

HANGS = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(sys.argv[1]).touch()
signal.pause()
"""


async def test_a_process_that_does_not_stop_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started = tmp_path / "started"
    supervisor = Supervisor([["-c", HANGS, str(started)]], stop_s=0.1)
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(60):
        while not started.exists():
            await asyncio.sleep(0.01)
        (process,) = supervisor.processes()
        supervisor.stop()
        assert await running == 0
    assert f"process 0 (pid {process.pid}) has not stopped within 0.1 s: killed" in caplog.messages
    assert supervisor.processes()[0].pid is None


async def test_a_process_that_cannot_be_started_is_tried_again_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is short of memory is, for a while."""
    started, starts, start = tmp_path / "started", [], asyncio.create_subprocess_exec

    async def fails_once(*command: str, **options: Any) -> asyncio.subprocess.Process:
        starts.append(command[-1])
        if starts.count("again") == 1 and command[-1] == "again":
            raise BlockingIOError("Resource temporarily unavailable")
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fails_once)
    monkeypatch.setattr("ringfaust.supervisor.RESTART_MIN_S", 0.01)
    supervisor = Supervisor([["-c", HANGS, str(started)], ["-c", "import sys", "again"]], stop_s=0)
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(60):
        while not (started.exists() and starts.count("again") > 2):
            await asyncio.sleep(0.01)
        assert supervisor.processes()[0].restarts == 0
        supervisor.stop()
        assert await running == 0
    assert "process 1 cannot be started (Resource temporarily unavailable)" in caplog.text


async def test_a_process_runs_our_code_and_not_that_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout after `pip install .`, those are sources that are not compiled."""
    (tmp_path / "ringfaust").mkdir()
    (tmp_path / "ringfaust" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    program = "import sys, ringfaust; open(sys.argv[1], 'w').write(ringfaust.__file__); sys.exit(2)"
    supervisor = Supervisor([["-c", program, "found"]], stop_s=60)
    assert await supervisor.run() == REFUSED
    assert (tmp_path / "found").read_text() == ringfaust.__file__


def test_code_in_the_present_folder_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout need not be installed."""
    monkeypatch.chdir(Path(ringfaust.__file__).parents[1])
    assert python() == [sys.executable]
