"""What the supervisor of `--processes` does with a process that hangs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

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
