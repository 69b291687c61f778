"""Fetch bundles of jars once, verify their pinned SHA-256 sums, and cache them in a folder.

A bundle's folder gets its name only after every jar is verified, so an interrupted download is
never mistaken for a complete bundle.
"""

from __future__ import annotations

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

from filelock import FileLock, Timeout
from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import track
from tenacity import retry, stop_after_attempt

from ringfaust.errors import RingfaustError
from ringfaust.java import DEFAULT_KAFKA, KafkaVersion

_ADVICE = (
    "Nothing was kept. Check the network (HTTPS_PROXY, if there is a proxy) and the disk, and try "
    "again. Or copy the cache folder from a machine where it worked and set RINGFAUST_CACHE to it"
)
_ATTEMPTS = 3
_PARALLEL = 6


@dataclass(frozen=True)
class Bundle:
    """Jars that belong together, pinned by SHA-256 in the file `lock` of `package`."""

    name: str
    """Name of the cache folder, with the version."""
    lock: str
    """A line for each jar: its SHA-256, its coordinates, and which versions need it, if not all."""
    title: str
    size: str
    instead: str
    """What to do on a machine that cannot fetch them."""
    package: str = "ringfaust.java"
    version: str = ""
    """Which jars of the lock file belong to it, besides those that all versions need."""


_KAFKA = {
    KafkaVersion.V3_6: ("3.6.2", "42 MB"),
    KafkaVersion.V3_9: ("3.9.1", "47 MB"),
    KafkaVersion.V4_1: ("4.1.1", "44 MB"),
    KafkaVersion.V4_2: ("4.2.1", "45 MB"),
}
"""By version of Kafka: the release, and the size of its jars."""


def kafka(version: KafkaVersion) -> Bundle:
    """Return the jars of a Kafka broker."""
    release, size = _KAFKA[version]
    return Bundle(
        f"kafka-{release}",
        "kafka-broker.lock",
        f"Apache Kafka {release}",
        size,
        "use your own broker with --bootstrap-servers",
        version=version,
    )


KAFKA = kafka(DEFAULT_KAFKA)
_SPARK_SIZES = {"4.0": "17 MB", "4.1": "23 MB", "4.2": "23 MB"}
"""By version of Spark: the size of its connectors."""


class UnsupportedSpark(RingfaustError):
    """No connectors are known for the installed version of PySpark.

    Attributes:
        version: the installed one.
    """

    def __init__(self, version: str) -> None:
        known = " or ".join(f"{each}.*" for each in _SPARK_SIZES)
        super().__init__(
            f"PySpark {version} is installed, but ringfaust has no Kafka and Delta connectors for "
            f"it: install PySpark {known}, or run the job with spark-submit (docs/spark.md)"
        )
        self.version = version


def spark_connectors(version: str) -> Bundle:
    """Return the jars of Kafka and Delta for a version of PySpark.

    Raises:
        UnsupportedSpark: none are known.
    """
    series = ".".join(version.split(".")[:2])
    if series not in _SPARK_SIZES:
        raise UnsupportedSpark(version)
    return Bundle(
        f"spark-{series}",
        "spark-connectors.lock",
        f"the Kafka and Delta connectors for Apache Spark {series}",
        _SPARK_SIZES[series],
        "run the job with spark-submit on a cluster that has these jars (docs/spark.md)",
        version=series,
    )


class FetchFailed(RingfaustError):
    """A bundle could not be fetched. Nothing was kept, so try again.

    Attributes:
        jar: Maven coordinates of the jar that failed.
    """

    def __init__(self, bundle: Bundle, jar: str, what: str) -> None:
        super().__init__(
            f"Fetching {bundle.title} failed at {jar}: {what}. {_ADVICE}. Or {bundle.instead}."
        )
        self.jar = jar


class CacheUnusable(RingfaustError):
    """The folder for downloaded jars cannot be used. Nothing was downloaded.

    Attributes:
        folder: the cache folder.
    """

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(
            f"The folder for downloaded jars, {folder}, cannot be used: {error.strerror or error}. "
            "Set RINGFAUST_CACHE to a folder that you can write to."
        )
        self.folder = folder


class _WrongChecksum(Exception):
    """A jar was downloaded, but its SHA-256 is not the pinned one."""


@dataclass(frozen=True)
class Jar:
    """A jar: Maven coordinates `group:artifact:version`, and its pinned SHA-256."""

    coordinates: str
    sha256: str


def cache_root() -> Path:
    """Return the cache folder: RINGFAUST_CACHE, or else a folder in the user's cache."""
    own = os.environ.get("RINGFAUST_CACHE")
    if own:
        return Path(own)
    return user_cache_path("ringfaust")


def pinned_jars(bundle: Bundle) -> list[Jar]:
    """Return the jars of a bundle, as listed in its lock file."""
    text = (files(bundle.package) / bundle.lock).read_text("utf-8")
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return [
        Jar(coordinates, sha256)
        for sha256, coordinates, *versions in rows
        if not versions or bundle.version in versions
    ]


def fetch(bundle: Bundle, console: Console | None = None) -> Path:
    """Return the folder with a bundle's jars, and download them first if necessary.

    Several processes may call this at once: one downloads, and the others wait for it.

    Args:
        bundle: which jars.
        console: shows the progress of a download; standard error by default.

    Raises:
        FetchFailed: a download failed, or its checksum is wrong.
        CacheUnusable: the cache folder cannot be written.
    """
    jars = pinned_jars(bundle)
    console = console or Console(stderr=True)
    # The name depends on the pins, so that another list of jars gets another folder.
    pins = hashlib.sha256(repr(jars).encode()).hexdigest()[:8]
    target = cache_root() / f"{bundle.name}-{pins}"
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(bundle, target.parent / f".{target.name}.lock", console):
            if not target.is_dir():
                _download_all(bundle, jars, target, console)
    except OSError as error:
        raise CacheUnusable(target.parent, error) from error
    return target


@contextmanager
def _only_one(bundle: Bundle, lock: Path, console: Console) -> Iterator[None]:
    """Hold the lock file. The system releases it when this process ends, however it ends."""
    file_lock = FileLock(lock)
    try:
        held = file_lock.acquire(blocking=False)
    except Timeout:
        console.print(f"waiting for another process to fetch {bundle.title}")
        held = file_lock.acquire()
    with held:
        yield


def _download_all(bundle: Bundle, jars: list[Jar], target: Path, console: Console) -> None:
    """Download and verify every jar, then rename the complete folder."""
    # We hold the lock, so folders with this prefix were left by a process that was killed.
    prefix = f".{target.name}-"
    for abandoned in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
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
    """Download one jar into `folder`, verify it, and move it to `ready`."""
    try:
        path = _download_verified(jar, folder)
    except Exception as error:  # ours, OSError, RuntimeError from jgo, those of requests
        raise FetchFailed(bundle, jar.coordinates, str(error)) from error
    path.rename(ready / path.name)


@retry(stop=stop_after_attempt(_ATTEMPTS), reraise=True)
def _download_verified(jar: Jar, folder: Path) -> Path:
    path = _download(jar.coordinates, Path(tempfile.mkdtemp(dir=folder), "m2"))
    _check(jar, path)
    return path


def _download(coordinates: str, scratch: Path) -> Path:
    """Download one jar into our own Maven repository, never the user's `~/.m2`."""
    # The import takes a quarter of a second, and is needed only if the cache is empty.
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415

    group, artifact, version = coordinates.split(":")
    maven = MavenContext(repo_cache=scratch, local_repos=[], resolver=PythonResolver(), timeout=60)
    return maven.project(group, artifact).at_version(version).artifact().resolve()


def _check(jar: Jar, path: Path) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != jar.sha256:
        raise _WrongChecksum(
            f"its SHA-256 is {found}, but {jar.sha256} is pinned. Something between this machine "
            "and the Maven repository changes files, such as a proxy that returns a login page"
        )
