"""A real RabbitMQ on loopback, in processes of its own, with a folder that ends with it."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from ringfaust.testing.broker import free_port
from tests.oracle.rabbitmq.packages import fetch_rabbitmq

_START_SECONDS, _STOP_SECONDS = 240.0, 20.0
_CONF = """\
listeners.tcp.1 = 127.0.0.1:{port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {web}
log.console = true
log.console.level = error
log.file = false
"""
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Before a command: it ends when this process is killed."""
_BASIC = "Basic " + base64.b64encode(b"guest:guest").decode()


class Broker:
    """RabbitMQ, and the port daemon of Erlang that it needs. All ports are on loopback."""

    def __init__(self) -> None:
        """Start both.

        Raises:
            NoRabbitMQ: it is not available on this machine.
            RuntimeError: it does not start.
        """
        root = fetch_rabbitmq()
        self._folder = tempfile.TemporaryDirectory(prefix="ringfaust-rabbitmq-")
        self._log = Path(self._folder.name, "log")
        self.port, self._web, distribution, epmd = (free_port() for _ in range(4))
        environment = self._environment(root, distribution, epmd)
        erts = environment["BINDIR"]
        with self._log.open("w") as log:
            self._epmd = subprocess.Popen(
                [*_WITH_US, f"{erts}/epmd", "-address", "127.0.0.1", "-port", str(epmd)],
                stdout=log, stderr=log, env=environment,
            )  # fmt: skip
            self._server = subprocess.Popen(
                [*_WITH_US, f"{erts}/erlexec", "-noinput", "-s", "rabbit", "boot",
                 "-boot", "start_sasl", "+W", "w", "+sbwt", "none", "+B", "i", "+S", "2:2",
                 "-kernel", "inet_dist_use_interface", "{127,0,0,1}",
                 "-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"],
                stdout=log, stderr=log, env=environment, cwd=self._folder.name,
            )  # fmt: skip
        try:
            self.version = self._started()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop both processes, and remove the folder."""
        for process in (self._server, self._epmd):
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    def load(self, definitions: dict[str, Any]) -> None:
        """Import definitions.

        Raises:
            RuntimeError: RabbitMQ refuses them.
        """
        self._ask("POST", "/api/definitions", json.dumps(definitions))

    def remove(self, vhost: str) -> None:
        """Delete a virtual host with all that is in it."""
        self._ask("DELETE", f"/api/vhosts/{vhost}")

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._web, timeout=60)
        try:
            headers = {"Authorization": _BASIC, "Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"RabbitMQ, {method} {path}: {answer.status} {content[:2000]!r}")
        return content

    def _started(self) -> str:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self._server.poll() is None:
            try:
                overview = json.loads(self._ask("GET", "/api/overview"))
            except (OSError, RuntimeError):
                time.sleep(0.2)
            else:
                return str(overview["rabbitmq_version"])
        raise RuntimeError(f"RabbitMQ did not start:\n{self._log.read_text()[-2000:]}")

    def _environment(self, root: Path, distribution: int, epmd: int) -> dict[str, str]:
        """What the start scripts would set, for packages that are not in their place."""
        erlang = root / "usr/lib/erlang"
        (home,) = (root / "usr/lib/rabbitmq/lib").iterdir()
        (erts,) = erlang.glob("erts-*/bin")
        own = Path(self._folder.name)
        (own / "enabled_plugins").write_text("[rabbitmq_management].")
        (own / "rabbitmq.conf").write_text(_CONF.format(port=self.port, web=self._web))
        paths = {
            "MNESIA_BASE": "mnesia", "LOG_BASE": "log-base", "CONFIG_FILE": "rabbitmq.conf",
            "ADVANCED_CONFIG_FILE": "none.config", "PLUGINS_EXPAND_DIR": "plugins",
            "ENABLED_PLUGINS_FILE": "enabled_plugins", "FEATURE_FLAGS_FILE": "flags",
            "PID_FILE": "pid", "CONF_ENV_FILE": "none.conf",
        }  # fmt: skip
        return {
            "PATH": f"{erts}:{os.environ['PATH']}", "HOME": str(own),
            "ROOTDIR": str(erlang), "BINDIR": str(erts), "EMU": "beam", "PROGNAME": "erl",
            "ERL_LIBS": f"{home}/plugins", "ERL_MAX_PORTS": "4096",
            "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(epmd),
            "RABBITMQ_HOME": str(home), "RABBITMQ_PLUGINS_DIR": f"{home}/plugins",
            "RABBITMQ_NODENAME": "oracle@localhost", "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_LOGS": "-", "SYS_PREFIX": str(own),
            **{f"RABBITMQ_{name}": str(own / file) for name, file in paths.items()},
        }  # fmt: skip
