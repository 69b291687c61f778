"""Applications as programs: found by name, stopped by signals, kept running by a supervisor.

Each process has a `MemoryBroker` of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ringfaust import event_loop
from ringfaust.app import RingApp
from ringfaust.app.health import CannotServe, Health, SubscriberHealth, serve_health
from ringfaust.app.loading import CannotLoad, load_app
from ringfaust.app.runner import log_to_stderr

DEADLINE_S = 60


def test_programs_of_ours_run_in_uvloop() -> None:
    """ADR 61."""

    async def kind() -> type[asyncio.AbstractEventLoop]:
        return type(asyncio.get_running_loop())

    assert event_loop.run(kind()) is uvloop.Loop


SHOP = """
import asyncio, os, pathlib, time
from ringfaust.app import Context, RingApp
from ringfaust.client import RingProducer
from ringfaust.testing import MemoryBroker

broker = MemoryBroker()
broker.__enter__()
app = RingApp(bootstrap_servers=broker.bootstrap_servers)
here = pathlib.Path(__file__).parent
(here / f"imported-{os.getpid()}").touch()

@app.subscriber("orders")
async def handle(order: str) -> None:
    (here / f"began-{os.getpid()}").touch()
    while not (here / "finish").exists():
        await asyncio.sleep(0.01)
    (here / f"done-{os.getpid()}").touch()

start = app.start
async def start_with_a_message():
    await start()
    async with RingProducer(**app.options) as producer:
        await producer.send("orders", "eggs")
app.start = start_with_a_message
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with applications, which is the present one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("found_"):
            del sys.modules[name]


def wait_for(is_true: Callable[[], Any], program: subprocess.Popen[str] | None = None) -> Any:
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := is_true()):
        assert program is None or program.poll() is None, "it has ended"
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found


# --- finding it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("", "found_1", "'found_1' is not of the form MODULE:ATTRIBUTE, such as shop:app"),
        ("", ":app", "':app' is not of the form"),
        ("", "found_nothing:app", "there is no module 'found_nothing' in "),
        ("", "found_nothing.at.all:app", "there is no module 'found_nothing' in "),
        ("", "found_2:app", "module 'found_2' has no 'app'; it has no RingApp"),
        ("shop = RingApp()", "found_3:shpo", "has no 'shpo'; did you mean 'shop'?"),
        ("shop = RingApp()\napp = 7", "found_4:app", "is a int, and not a RingApp; known: shop"),
        ("import found_of_others", "found_5:app", "found_5.py, line 2: ModuleNotFoundError: "),
        ("a = 1\nb = a / 0", "found_6:app", "found_6.py, line 3: ZeroDivisionError: division"),
        ("a = = 1", "found_7:app", "found_7.py, line 2: SyntaxError: invalid syntax"),
    ],
)
def test_an_application_that_is_not_there_is_named(
    folder: Path, source: str, target: str, text: str
) -> None:
    name = target.partition(":")[0]
    if name and "nothing" not in name:
        (folder / f"{name}.py").write_text(f"from ringfaust.app import RingApp\n{source}\n")
    with pytest.raises(CannotLoad) as refused:
        load_app(target)
    assert text in str(refused.value)


def test_an_application_is_found_in_the_present_folder(folder: Path) -> None:
    (folder / "found_8.py").write_text("from ringfaust.app import RingApp\napp = RingApp('shop')")
    assert isinstance(found := load_app("found_8:app"), RingApp)
    assert found.options["application"] == "shop"


@pytest.mark.parametrize("program", ["ringfaust run", "ringfaust.app"])
def test_a_mistake_costs_one_line_and_no_traceback(folder: Path, program: str) -> None:
    command = [sys.executable, "-m", *program.split(), "found_nothing:app"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("ringfaust: there is no module 'found_nothing' in ")


NOBODY = """
from ringfaust.app import RingApp
app = RingApp("shop", bootstrap_servers="127.0.0.1:1")

@app.subscriber("orders")
async def handle(order: str) -> None:
    pass
"""


def test_a_broker_that_does_not_answer_is_named(folder: Path) -> None:
    (folder / "found_9.py").write_text(NOBODY)
    command = [sys.executable, "-m", "ringfaust", "run", "found_9:app"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "ringfaust: no Kafka broker answers at 127.0.0.1:1: check bootstrap_servers and "
        "client_options of found_9:app"
    )


def test_the_log_does_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        log_to_stderr()
        logging.getLogger("ringfaust.app").warning("message %s is dead", "\x1b[2J")
    finally:
        root.handlers[:], root.level = before, level
    assert capsys.readouterr().err.endswith("WARNING message \\x1b[2J is dead\n")


# --- running it ---------------------------------------------------------------------------------


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    (folder / "shop.py").write_text(SHOP)
    command = [sys.executable, "-m", "ringfaust", "run", "shop:app", *options]
    with (folder / "log").open("w") as log:
        return subprocess.Popen(command, cwd=folder, text=True, stderr=log, start_new_session=True)


def log_of(folder: Path) -> str:
    return (folder / "log").read_text()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_has_begun(folder: Path, sent: signal.Signals) -> None:
    with start(folder) as program:
        try:
            wait_for(lambda: [*folder.glob("began-*")], program)
            program.send_signal(sent)
            wait_for(lambda: "waiting for 1 handlers, at most 20 s" in log_of(folder), program)
            (folder / "finish").touch()
            program.wait(DEADLINE_S)
        finally:
            program.kill()
    assert program.returncode == 0
    assert [*folder.glob("done-*")]
    assert "Traceback" not in log_of(folder)


def test_processes_are_kept_running_and_stopped_together(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with start(folder, "--processes", "2", "--health-port", str(port)) as program:
        try:
            wait_for(lambda: len([*folder.glob("began-*")]) == 2, program)
            assert fetch(port)["is_ok"]
            first, _ = sorted(folder.glob("began-*"))
            killed = int(first.name.removeprefix("began-"))
            os.kill(killed, signal.SIGKILL)
            wait_for(lambda: len([*folder.glob("began-*")]) == 3, program)
            health = fetch(port)
            assert sorted(each["restarts"] for each in health["processes"]) == [0, 1]
            assert killed not in [each["pid"] for each in health["processes"]]
            os.killpg(program.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
            wait_for(lambda: log_of(folder).count("waiting for 1 handlers") == 2, program)
            (folder / "finish").touch()
            program.wait(DEADLINE_S)
        finally:
            program.kill()
    assert program.returncode == 0
    assert len([*folder.glob("done-*")]) == 2
    log = log_of(folder)
    assert f"(pid {killed}) has ended with status -9 and is started again in 1 s" in log
    assert "Traceback" not in log


def test_the_processes_of_a_supervisor_that_was_killed_end_too(folder: Path) -> None:
    (folder / "finish").touch()
    with start(folder, "--processes", "2") as program:
        try:
            wait_for(lambda: len([*folder.glob("done-*")]) == 2, program)
            pids = [int(each.name.removeprefix("done-")) for each in folder.glob("done-*")]
        finally:
            program.kill()
    wait_for(lambda: not any(map(runs, pids)))


def runs(pid: int) -> bool:
    """Whether a process runs. One that has ended may still be in the table."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def fetch(port: int) -> Any:
    """The body of the page."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: me\r\n\r\n")
        answer = b""
        while more := connection.recv(65_536):
            answer += more
    return json.loads(answer.partition(b"\r\n\r\n")[2])


# --- health -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_ok", "status"), [(True, b"200 OK"), (False, b"503 Service Unava")])
async def test_the_health_is_a_page_with_a_status(is_ok: bool, status: bytes) -> None:
    health = Health(is_ok, (SubscriberHealth("orders", is_ok, 1, 2, 3, 4),))
    async with serve_health("127.0.0.1", 0, lambda: health) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        writer.close()
        with pytest.raises(CannotServe, match=f"port {port}: "):
            async with serve_health("127.0.0.1", port, lambda: health):
                pass
    assert answer.startswith(b"HTTP/1.1 " + status)
    (subscriber,) = json.loads(answer.partition(b"\r\n\r\n")[2])["subscribers"]
    assert subscriber == {
        "queue": "orders", "is_attached": is_ok, "handling": 1, "acked": 2, "retried": 3, "dead": 4,
    }  # fmt: skip
