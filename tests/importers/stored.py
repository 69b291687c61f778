"""A real Artemis that stores messages and exports them as XML."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from bench.peers.artemis_home import artemis_home, lift_disk_limit
from ringfaust.java.runtime import find_java
from ringfaust.testing.broker import free_port

FILL = Path(__file__).with_name("Fill.java")
_START_S = 120


def export(folder: Path, queue: str, count: int, due_at_ms: int) -> Path:
    """Fill a queue of a broker of its own, stop the broker, and export what it has stored.

    Returns:
        The file that `artemis data exp` has written.
    """
    home, port = artemis_home(), free_port()
    instance, output = folder / "broker", folder / "export.xml"
    _run(
        folder, home / "bin/artemis", "create", instance, "--silent", "--allow-anonymous",
        "--user", "test", "--password", "test", "--host", "127.0.0.1", "--default-port", port,
        "--java-memory", "512M", "--no-web", "--no-amqp-acceptor", "--no-mqtt-acceptor",
        "--no-stomp-acceptor", "--no-hornetq-acceptor", "--no-autotune", "--nio", "--no-fsync",
    )  # fmt: skip
    lift_disk_limit(instance)
    with (folder / "broker.log").open("wb") as log:
        broker = subprocess.Popen([instance / "bin/artemis", "run"], stdout=log, stderr=log)
        try:
            _wait_for(port, broker, folder / "broker.log")
            _run(
                folder, find_java().path, "-cp", f"{home}/lib/*", FILL,
                f"tcp://127.0.0.1:{port}", queue, count, due_at_ms,
            )  # fmt: skip
        finally:
            broker.terminate()
            broker.wait(60)
    _run(folder, instance / "bin/artemis", "data", "exp", "--output", output)
    return output


def _run(folder: Path, *words: object) -> None:
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, cwd=folder, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _wait_for(port: int, broker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        assert broker.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"Artemis does not accept connections: {log.read_text()}")
