"""Bundles of jars: fetched once, checked against pinned SHA-256 sums, kept in a cache folder.

The folder appears under its name only when it is complete and checked, so a download that was
killed leaves nothing that could be taken for whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.progress import track

from ringfaust.errors import RingfaustError

_ADVICE = (
    "Nothing was kept. Check the network (HTTPS_PROXY, if there is a proxy) and the disk, then try "
    "again; or set RINGFAUST_CACHE to a copy of this folder from a machine where it worked"
)
_ATTEMPTS = 3
_PARALLEL = 6


@dataclass(frozen=True)
class Bundle:
    """Jars that belong together, pinned by SHA-256 in the file `lock` of `package`."""

    name: str
    """Name of the cache folder, with the version."""
    lock: str
    title: str
    size: str
    instead: str
    """What to do where they cannot be fetched at all."""
    package: str = "ringfaust.java"


KAFKA = Bundle(
    "kafka-4.1.1",
    "kafka-broker.lock",
    "Apache Kafka 4.1.1",
    "44 MB",
    "use a broker of your own with --bootstrap-servers",
)
SPARK = Bundle(
    "spark-4.0.0",
    "spark-connectors.lock",
    "what Apache Spark 4.0 needs for Kafka and Delta",
    "17 MB",
    "run the job by spark-submit on a cluster that has these jars (docs/spark.md)",
)


class FetchFailed(RingfaustError):
    """A bundle could not be fetched; nothing is left behind, so simply try again.

    Attributes:
        jar: Maven coordinates of the jar that failed.
    """

    def __init__(self, bundle: Bundle, jar: str, what: str) -> None:
        super().__init__(
            f"Fetching {bundle.title} failed at {jar}: {what}. {_ADVICE}; or {bundle.instead}."
        )
        self.jar = jar


class _WrongSum(Exception):
    """A jar came, but its bytes are not the pinned ones."""


@dataclass(frozen=True)
class Jar:
    """One jar: Maven coordinates `group:artifact:version` and the SHA-256 it must have."""

    coordinates: str
    sha256: str


def cache_root() -> Path:
    """Return the folder for what is fetched once: RINGFAUST_CACHE, else in the user's cache."""
    own = os.environ.get("RINGFAUST_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringfaust"


def pinned_jars(bundle: Bundle) -> list[Jar]:
    """Return the jars of a bundle."""
    text = (files(bundle.package) / bundle.lock).read_text("utf-8")
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return [Jar(coordinates, sha256) for sha256, coordinates in rows]


def fetch(bundle: Bundle, console: Console | None = None) -> Path:
    """Return the folder with a bundle's jars, downloading them first where they are not yet there.

    Several processes may call this at once: one downloads, the others wait for it.

    Args:
        bundle: which jars.
        console: where progress goes; standard error if not given. Silent if all is there.

    Raises:
        FetchFailed: a download failed or brought the wrong bytes.
        OSError: the cache folder cannot be written.
    """
    jars = pinned_jars(bundle)
    console = console or Console(stderr=True)
    # Named after what is pinned: another list of jars is another folder.
    pins = hashlib.sha256(repr(jars).encode()).hexdigest()[:8]
    target = cache_root() / f"{bundle.name}-{pins}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(bundle, target.parent / f".{target.name}.lock", console):
        if not target.is_dir():
            _download_all(bundle, jars, target, console)
    return target


@contextmanager
def _only_one(bundle: Bundle, lock: Path, console: Console) -> Iterator[None]:
    """Hold the lock file; the system lets go of it when this process dies, however it dies."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"waiting for another process that is fetching {bundle.title}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download_all(bundle: Bundle, jars: list[Jar], target: Path, console: Console) -> None:
    """Download and check every jar, then let the whole folder appear at once."""
    # We hold the lock, so whatever has this prefix was left by a process that was killed.
    prefix = f".{target.name}-"
    for left in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix) as folder:
        ready = Path(folder, "jars")
        ready.mkdir()
        with ThreadPoolExecutor(_PARALLEL) as pool:
            tasks = [pool.submit(_fetch_jar, bundle, jar, Path(folder), ready) for jar in jars]
            title = f"fetching {bundle.title} ({bundle.size}, once)"
            try:
                for task in track(as_completed(tasks), title, len(tasks), console=console):
                    task.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        ready.rename(target)


def _fetch_jar(bundle: Bundle, jar: Jar, folder: Path, ready: Path) -> None:
    """Download one jar into `folder`, check it, and move it to `ready`."""
    name = jar.coordinates.replace(":", "_")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            path = _download(jar.coordinates, folder / f"{name}-{attempt}")
            _check(jar, path)
        except Exception as error:  # ours, those of requests, RuntimeError from jgo, OSError
            if attempt == _ATTEMPTS:
                raise FetchFailed(bundle, jar.coordinates, str(error)) from error
        else:
            path.rename(ready / path.name)
            return


def _download(coordinates: str, scratch: Path) -> Path:
    """Download one jar into a Maven repository of our own, never the user's `~/.m2`."""
    # Imported here as it costs a quarter of a second, and almost every start finds the cache full.
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415

    group, artifact, version = coordinates.split(":")
    maven = MavenContext(repo_cache=scratch, local_repos=[], resolver=PythonResolver(), timeout=60)
    return maven.project(group, artifact).at_version(version).artifact().resolve()


def _check(jar: Jar, path: Path) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != jar.sha256:
        raise _WrongSum(
            f"its SHA-256 is {found}, but {jar.sha256} is pinned: something between here and the "
            "Maven repository changes files, such as a proxy that answers with a page of its own"
        )
