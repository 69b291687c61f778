"""An application for tests: its configuration, its topics, its worker processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import yaml
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.config import QueuesConfig, WorkerConfig, load
from ringfaust.config.topics import create_topics

ROOT = Path(__file__).parents[2]
START_S = STOP_S = 60.0
_POLL_S = 0.05
_DUMP_S = 3.0


async def until(true: Callable[[], Any], seconds: float, what: str) -> None:
    """Wait for a condition."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not true():
        assert loop.time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(_POLL_S)


def command(*arguments: str | Path) -> list[str]:
    """A ringfaust command for a subprocess."""
    return [sys.executable, "-m", "ringfaust", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


_CLOCK = """
import pathlib, time

_real, _file = time.time_ns, pathlib.Path(__file__).with_name("ahead_ms")
time.time_ns = lambda: _real() + int(_file.read_text() or 0) * 1_000_000
"""


class Machine:
    """The clock of a worker's machine: ahead by as much as a file says."""

    def __init__(self, folder: Path) -> None:
        self.shims = folder
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_CLOCK)
        self.set_ahead(0)

    def set_ahead(self, ms: int) -> None:
        new = self.shims / "new"
        new.write_text(str(ms))
        new.rename(self.shims / "ahead_ms")


class Worker:
    """One `ringfaust worker` process, with a data directory of its own."""

    def __init__(
        self, app: Application, number: int, shims: Path | None = None, servers: str = ""
    ) -> None:
        """Create it, without starting it.

        Args:
            app: whose configuration it uses.
            number: of the worker.
            shims: a folder with modules that its Python finds first.
            servers: where it finds the brokers; empty: as its configuration says.
        """
        self.number = number
        self._options = ["--bootstrap-servers", servers] if servers else []
        path = str(ROOT) if shims is None else f"{shims}:{ROOT}"
        self._environment = environment() | {"PYTHONPATH": path}
        self.name = f"worker {number}"
        self.data_dir = app.folder / f"data-{number}"
        self.log = app.folder / f"worker-{number}.log"
        self._config = app.config_dir
        self._process: subprocess.Popen[bytes] | None = None
        self.python: Path | None = None
        """The Python that has another version of ringfaust; None: run this one."""

    @property
    def pid(self) -> int:
        """Its process id, also after its end."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        program = command(
            "worker", "--config", self._config, "--data-dir", self.data_dir, *self._options
        )
        given = self._environment
        if self.python is not None:
            program[0] = str(self.python)
            given = {name: each for name, each in given.items() if name != "PYTHONPATH"}
        with self.log.open("ab") as log:
            log.write(b"--- start\n")
            self._process = subprocess.Popen(
                program,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=given,
                cwd=self.log.parent,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL. The files that the operating system has stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wipe(self) -> None:
        """Delete its data directory."""
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def has_started(self) -> bool:
        """Whether it has said since its start if it is ready. Before, SIGTERM just ends it."""
        return "ready" in self._said()

    def has_connected(self) -> bool:
        """Whether it has got partitions since its start. Before, it ends if no broker answers."""
        return " INFO assigned: " in self._said()

    def stop(self) -> int:
        """Send SIGTERM and wait. Returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(STOP_S)

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGUSR1)  # Faust logs where its threads and tasks are
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_DUMP_S)
            self.kill()
            raise AssertionError(f"{self.name} did not end: {self.log_text()}") from None

    def trusts_its_clock(self) -> bool:
        """Whether it has not said since its last start that its clock is wrong (R115)."""
        said = self._said()
        wrong, right = (said.rfind(f"clock of this machine {each}") for each in ("is", "agrees"))
        return wrong <= right

    def _said(self) -> str:
        """What it has logged since its last start."""
        return self.log_text().rpartition("--- start\n")[2]

    def log_text(self) -> str:
        """Everything it has logged."""
        return self.log.read_text(errors="replace")


class Application:
    """A directory with configuration files, as a user would have them."""

    def __init__(
        self, folder: Path, servers: str, queues: dict[str, Any], **settings: object
    ) -> None:
        self.folder = folder
        self.config_dir = folder / "config"
        self.config_dir.mkdir(parents=True)
        name = f"app-{uuid.uuid4().hex[:6]}"
        worker = {"application": name, "bootstrap_servers": servers, "partitions": 2, **settings}
        self.write("worker.yaml", worker)
        self.write("queues.yaml", queues)
        self.servers = servers
        self.worker_config: WorkerConfig
        self.queues_config: QueuesConfig
        self.worker_config, self.queues_config = load(self.config_dir)
        self.workers: list[Worker] = []

    def __enter__(self) -> Self:
        """Create its topics."""
        self.create_topics()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def write(self, name: str, content: object) -> None:
        (self.config_dir / name).write_text(yaml.safe_dump(content))

    def topic(self, role: str) -> str:
        return self.worker_config.topic(role)

    @property
    def inputs(self) -> list[str]:
        return [route.topic for route in self.queues_config.routes]

    def create_topics(self) -> None:
        """Do what `ringfaust topics create` does; a process of its own costs a second."""
        create = create_topics(self.worker_config, self.queues_config)
        with ThreadPoolExecutor(1) as pool:  # this thread may have a running event loop
            pool.submit(asyncio.run, create).result()

    def run(self, *arguments: str | Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a ringfaust command and wait for its end."""
        return subprocess.run(
            command(*arguments),
            check=False,
            capture_output=True,
            text=True,
            env=environment(),
            cwd=self.folder,
            timeout=seconds,
        )

    def run_inside(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a ringfaust command in this process: one of its own costs a second."""
        given = [*map(str, arguments)]
        with ThreadPoolExecutor(1) as pool:  # this thread may have a running event loop
            done = pool.submit(CliRunner().invoke, main, given).result()
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(given, done.exit_code, done.stdout, done.stderr)

    def new_worker(self, shims: Path | None = None, servers: str = "") -> Worker:
        worker = Worker(self, len(self.workers), shims, servers)
        self.workers.append(worker)
        worker.start()
        return worker

    async def stop(self, worker: Worker) -> list[str]:
        """Stop a worker in an orderly way, once it has started. Returns what was wrong."""
        await until(
            lambda: worker.has_started() or not worker.alive, START_S, f"{worker.name} starts"
        )
        code = await asyncio.to_thread(worker.stop)
        end = f"{worker.name} exited with {code} after SIGTERM: {worker.log_text()[-3_000:]}"
        return [end] if code else []

    def end(self) -> None:
        """Kill all workers."""
        for worker in self.workers:
            worker.kill()
