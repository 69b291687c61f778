"""Debian's packages of RabbitMQ and Erlang, extracted into the cache; nothing is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock

from ringfaust.errors import RingfaustError
from ringfaust.java.jars import cache_root

_ERLANG = (
    "base", "asn1", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key",
    "runtime-tools", "ssl", "syntax-tools", "tools", "xmerl",
)  # fmt: skip
_PACKAGES = ("rabbitmq-server", *(f"erlang-{name}" for name in _ERLANG))
_SECONDS = 300


class NoRabbitMQ(RingfaustError):
    """RabbitMQ cannot be had on this machine; the text says why."""


def fetch_rabbitmq() -> Path:
    """Return the folder with the extracted packages, and download them first if necessary.

    apt verifies what it downloads.

    Raises:
        NoRabbitMQ: this is no Debian, apt does not know the packages, or they cannot be fetched.
    """
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NoRabbitMQ(f"RabbitMQ comes from Debian's packages, and there is no {tool} here")
    known = _run("apt-cache", "policy", _PACKAGES[0])
    found = re.search(r"Candidate: (\d[\w.+~:-]*)", known)
    if found is None:
        raise NoRabbitMQ(f"apt does not know {_PACKAGES[0]}; `apt-get update` may help")
    target = cache_root() / f"rabbitmq-{found[1]}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / f".{target.name}.lock"):
        if not target.is_dir():
            _extract(target)
    return target


def _extract(target: Path) -> None:
    """Download and extract all packages, then rename the complete folder."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        ready = Path(scratch, "ready")
        _run("apt-get", "-q", "download", *_PACKAGES, folder=scratch)
        for package in sorted(Path(scratch).glob("*.deb")):
            _run("dpkg-deb", "-x", str(package), str(ready))
        ready.rename(target)


def _run(*words: str, folder: str | None = None) -> str:
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoRabbitMQ(f"{words[0]} {words[1]} took over {_SECONDS} s") from None
    if done.returncode:
        raise NoRabbitMQ(f"{' '.join(words[:3])} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
