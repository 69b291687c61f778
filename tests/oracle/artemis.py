"""A real Artemis broker in a process of its own, and how to talk to it."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ringfaust.java.jars import Bundle, fetch
from ringfaust.java.runtime import find_java

ARTEMIS = Bundle(
    "artemis-2.44.0",
    "artemis.lock",
    "Apache ActiveMQ Artemis 2.44.0",
    "8 MB",
    "leave this test out",
    package="tests.oracle",
)
DRIVER = Path(__file__).with_name("Driver.java")


class Artemis:
    """The process of `Driver.java`: a broker that is asked line by line; it listens nowhere."""

    def __init__(self) -> None:
        java = find_java().path
        jars = fetch(ARTEMIS)
        self._log: IO[str] = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [java, "-Xmx256m", "-Dslf4j.internal.verbosity=ERROR", "-cp", f"{jars}/*", str(DRIVER)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1,
        )  # fmt: skip
        self.version = self._read()["version"]

    def __enter__(self) -> Artemis:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The broker stops when its input ends; if it does not, this process is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def ask(self, *words: object) -> dict[str, Any]:
        """Give one command; its answer.

        Raises:
            RuntimeError: the broker or the driver failed.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        answer = self._read()
        if answer.get("error"):
            raise RuntimeError(f"Artemis, asked {words}: {answer['error']}\n{self._errors()}")
        return answer

    def now_ms(self) -> int:
        """Its clock is that of this machine."""
        return time.time_ns() // 1_000_000

    def wait(self, ms: int) -> None:
        """Let time pass."""
        time.sleep(ms / 1000)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Artemis process ended:\n{self._errors()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _errors(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:]
