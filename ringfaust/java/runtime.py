"""Find a Java runtime for the embedded broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ringfaust.errors import RingfaustError

MINIMUM_VERSION = 17
"""The oldest Java version that Kafka's broker runs on."""

_ADVICE = (
    f"The embedded broker needs Java {MINIMUM_VERSION} or newer: install it (Debian: apt-get "
    "install openjdk-17-jre-headless), set JAVA_HOME, or use your own broker with "
    "--bootstrap-servers."
)


_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


class NoJava(RingfaustError):
    """Java is missing, does not run, or is too old. The message says what to do."""


@dataclass(frozen=True)
class Java:
    """A suitable Java: the path of its executable, and its full version, such as `17.0.15`."""

    path: str
    version: str


def without_second_collector(options: Iterable[str], *given: str | None) -> list[str]:
    """Return options of Java, without a garbage collector if another one is chosen.

    By the environment, or by `given`. Java refuses two.
    """
    chosen = any("GC" in (each or "") for each in (*given, *map(os.environ.get, _OPTIONS)))
    return [each for each in options if not (chosen and "GC" in each)]


def find_java() -> Java:
    """Return the Java in JAVA_HOME or, if that is not set, the one on the PATH.

    Raises:
        NoJava: it is missing, does not run, or is older than `MINIMUM_VERSION`.
    """
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME ({home})" if home else "the PATH"
    path = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if path is None:
        raise NoJava(f"No java executable in {where}. {_ADVICE}")
    try:
        done = subprocess.run(
            [path, "-version"], check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{path} does not run ({error}). {_ADVICE}") from error
    version = re.search(r'version "([^"]+)"', done.stderr)
    if version is None:
        raise NoJava(f"{path} does not report its version: {done.stderr.strip()!r}. {_ADVICE}")
    if _major(version[1]) < MINIMUM_VERSION:
        raise NoJava(f"{path} is Java {version[1]}. {_ADVICE}")
    return Java(path, version[1])


def _major(version: str) -> int:
    """Return 17 for `17.0.15` and 8 for `1.8.0_402`."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
