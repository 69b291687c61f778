"""Artemis' own distribution, fetched once from Maven and kept beside the other downloads."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from pathlib import Path

from jgo.maven import MavenContext, PythonResolver
from rich.console import Console

from bench.processes import Failed
from ringfaust.java.jars import cache_root

VERSION = "2.44.0"
SHA256 = "1030320a8d1af6376361cd750bef12ef3cf7babc7a363bc6097340961d1e3e29"
_NAME = f"apache-artemis-{VERSION}"


def artemis_home() -> Path:
    """Return the folder of the distribution; the first call downloads its 46 MB."""
    home = cache_root() / _NAME
    if not home.is_dir():
        cache_root().mkdir(parents=True, exist_ok=True)
        Console(stderr=True).print(f"fetching {_NAME} (46 MB, once)")
        with tempfile.TemporaryDirectory(dir=cache_root(), prefix=".artemis-") as scratch:
            _unpack(_download(Path(scratch)), Path(scratch))
            Path(scratch, _NAME).rename(home)
    return home


def lift_disk_limit(instance: Path) -> None:
    """Change a broker that `artemis create` has made: a disk that is nearly full does not stop it.

    By default it blocks its producers, without a word, when less than a tenth of the disk is free.
    """
    path, limit = instance / "etc/broker.xml", "<max-disk-usage>90<"
    text = path.read_text()
    assert limit in text
    path.write_text(text.replace(limit, "<max-disk-usage>100<"))


def _download(scratch: Path) -> Path:
    maven = MavenContext(
        repo_cache=scratch / "maven", local_repos=[], resolver=PythonResolver(), timeout=60
    )
    project = maven.project("org.apache.activemq", "apache-artemis").at_version(VERSION)
    archive: Path = project.artifact(classifier="bin", packaging="tar.gz").resolve()
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise Failed(f"{archive.name} has the SHA-256 {found}, but {SHA256} is pinned")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
