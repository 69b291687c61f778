"""One Spark session for all tests here: a start costs five seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.spark.session import open_session
from tests.spark.shared_session import SMALL_DATA, for_small_data

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:NewRatio=1 -XX:MetaspaceSize=300m"


@pytest.fixture(scope="session", autouse=True)
def _roomy() -> Iterator[None]:
    """Starting with room for objects and classes saves a hundred garbage collections."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("ringfaust tests", "local[2]", SMALL_DATA)
    yield session
    session.stop()


@pytest.fixture
def small_data_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs that run as processes of their own use the shared session's settings, too."""
    monkeypatch.setenv("SPARK_CONF_DIR", for_small_data(tmp_path)["SPARK_CONF_DIR"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts jobs of its own may take minutes on a machine with other work."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))
