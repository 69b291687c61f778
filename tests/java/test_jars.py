"""Finding Java and fetching jars: everything that can go wrong before a broker starts."""

from __future__ import annotations

import hashlib
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from ringfaust.java import KafkaVersion, jars
from ringfaust.java.jars import (
    KAFKA,
    Bundle,
    FetchFailed,
    Jar,
    UnsupportedSpark,
    fetch,
    kafka,
    pinned_jars,
    spark_connectors,
)
from ringfaust.java.runtime import NoJava, find_java
from ringfaust.testing.broker import EmbeddedBroker

GOOD = b"the bytes of a jar"
PINNED = [Jar(f"org.example:jar{n}:1.0", hashlib.sha256(GOOD).hexdigest()) for n in range(4)]


class Registry:
    """Replaces the Maven repository: returns bytes, and records what was requested."""

    def __init__(self, content: bytes = GOOD, error: Exception | None = None) -> None:
        self.content = content
        self.error = error
        self.requested: list[str] = []

    def download(self, coordinates: str, scratch: Path) -> Path:
        self.requested.append(coordinates)
        if self.error:
            raise self.error
        scratch.mkdir()
        path = scratch / f"{coordinates.split(':')[1]}.jar"
        path.write_bytes(self.content)
        return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RINGFAUST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "pinned_jars", lambda bundle: PINNED)
    return tmp_path / "cache"


def use(monkeypatch: pytest.MonkeyPatch, registry: Registry) -> Registry:
    monkeypatch.setattr(jars, "_download", registry.download)
    return registry


def visible(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if not path.name.startswith(".")]


@pytest.mark.parametrize(
    ("bundle", "main"),
    [
        (kafka(KafkaVersion.V3_6), "org.apache.kafka:kafka_2.13:3.6.2"),
        (kafka(KafkaVersion.V3_9), "org.apache.kafka:kafka_2.13:3.9.1"),
        (KAFKA, "org.apache.kafka:kafka_2.13:4.1.1"),
        (kafka(KafkaVersion.V4_2), "org.apache.kafka:kafka_2.13:4.2.1"),
        (spark_connectors("4.0.5"), "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"),
        (spark_connectors("4.1.4"), "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3"),
        (spark_connectors("4.2.0"), "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"),
    ],
)
def test_every_jar_is_pinned(bundle: Bundle, main: str) -> None:
    pinned = pinned_jars(bundle)
    assert main in [jar.coordinates for jar in pinned]
    assert all(len(jar.sha256) == 64 and jar.coordinates.count(":") == 2 for jar in pinned)
    projects = [jar.coordinates.rpartition(":")[0] for jar in pinned]
    assert len(projects) == len(set(projects)), "a project is pinned in one version"


def test_a_spark_without_known_connectors_is_refused() -> None:
    with pytest.raises(UnsupportedSpark, match=r"PySpark 4\.3\.0 .* install PySpark 4\.0\.\*"):
        spark_connectors("4.3.0")


def test_a_bundle_is_fetched_once_and_then_found_silently(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = use(monkeypatch, Registry())
    folder = fetch(KAFKA, Console(file=io.StringIO()))
    assert sorted(path.name for path in folder.iterdir()) == [f"jar{n}.jar" for n in range(4)]
    output = io.StringIO()
    assert fetch(KAFKA, Console(file=output)) == folder
    assert output.getvalue() == ""
    assert len(registry.requested) == len(PINNED)


def test_two_concurrent_fetches_download_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = use(monkeypatch, Registry())
    with ThreadPoolExecutor(2) as pool:
        consoles = [Console(file=io.StringIO()) for _ in range(2)]
        first, second = pool.map(lambda console: fetch(KAFKA, console), consoles)
    assert first == second
    assert len(registry.requested) == len(PINNED)


def test_the_remains_of_a_killed_download_are_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Registry())
    done = fetch(KAFKA, Console(file=io.StringIO()))
    half = cache / f".{done.name}-killed"
    done.rename(half)
    assert fetch(KAFKA, Console(file=io.StringIO())) == done
    assert not half.exists()


def test_a_jar_with_a_wrong_checksum_is_named_and_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Registry(content=b"<html>please log in</html>"))
    with pytest.raises(FetchFailed, match=r"org\.example:jar\d:1\.0: its SHA-256 is .* is pinned"):
        fetch(KAFKA, Console(file=io.StringIO()))
    assert visible(cache) == []


def test_a_failed_download_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = use(monkeypatch, Registry(error=RuntimeError("not found in remote repositories")))
    with pytest.raises(FetchFailed, match="not found in .* Check the network .*--bootstrap-server"):
        fetch(KAFKA, Console(file=io.StringIO()))
    assert visible(cache) == []
    assert len(registry.requested) > len(PINNED), "a failure is retried"


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        NoJava, match="No java executable in the PATH.* needs Java 17 .*--bootstrap-servers"
    ):
        EmbeddedBroker().start()


def test_a_java_home_without_java_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match="JAVA_HOME"):
        find_java()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11.0.2"),
        ('java version "1.8.0_402"', "is Java 1.8.0_402"),
        ("Segmentation fault", "does not report its version"),
    ],
)
def test_an_unsuitable_java_is_reported(
    line: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match=f"{fault}.*needs Java 17"):
        find_java()
