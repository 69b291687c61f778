"""Find the Java that runs the embedded broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ringfaust.errors import RingfaustError

NEEDED = 17
"""The oldest Java that Kafka's broker runs on."""

_ADVICE = (
    f"The embedded broker needs Java {NEEDED} or newer: install one (Debian: apt-get install "
    "openjdk-17-jre-headless), or set JAVA_HOME to one, or use a broker of your own with "
    "--bootstrap-servers."
)


class NoJava(RingfaustError):
    """There is no Java, or it does not run, or it is too old. The message says what to do."""


@dataclass(frozen=True)
class Java:
    """A Java that is new enough: its executable and its full version, such as `17.0.15`."""

    path: str
    version: str


def find_java() -> Java:
    """Return the Java of JAVA_HOME or, without that, the one on the PATH.

    Raises:
        NoJava: there is none, it does not run, or it is older than `NEEDED`.
    """
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME ({home})" if home else "the PATH"
    path = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if path is None:
        raise NoJava(f"No java in {where}. {_ADVICE}")
    try:
        told = subprocess.run(
            [path, "-version"], check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{path} does not run ({error}). {_ADVICE}") from error
    version = re.search(r'version "([^"]+)"', told.stderr)
    if version is None:
        raise NoJava(f"{path} does not tell its version: {told.stderr.strip()!r}. {_ADVICE}")
    if _major(version[1]) < NEEDED:
        raise NoJava(f"{path} is Java {version[1]}. {_ADVICE}")
    return Java(path, version[1])


def _major(version: str) -> int:
    """Return 17 for `17.0.15` and 8 for `1.8.0_402`."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
