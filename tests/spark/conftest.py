"""One Spark session and one lake for all tests here: a session takes five seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.spark.lake import gold
from ringfaust.spark.session import open_session
from tests.spark.batched_lake import LAST, BatchedLake, continue_by_batch
from tests.spark.lake_history import LakeHistory
from tests.spark.shared_session import SMALL_DATA, for_small_data

JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:NewRatio=1 -XX:MetaspaceSize=300m "
    # With one compiler Java reserves 48 MB, which Spark fills. Then it sweeps, and compiles again.
    "-XX:ReservedCodeCacheSize=256m "
    # For each file that Spark writes, Hadoop runs chmod up to four times. Java would start a helper
    # process first, which starts chmod.
    "-Djdk.lang.Process.launchMechanism=VFORK"
)


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


@pytest.fixture(scope="session")
def stages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[BatchedLake]:
    """A lake with transitions, in whose last batch another day begins; copies with more gold.

    The first one has none, the next one that of the first batch, and the last one all, as it is if
    nobody interferes. Tests write to copies.
    """
    lake, history = BatchedLake(spark, tmp_path_factory.mktemp("silver") / "lake"), LakeHistory(0)
    for batch in range(LAST + 1):
        values = continue_by_batch(history, batch)
        lake.write(values, history.now_ms)
    found = [lake]
    for batch in range(LAST + 1):
        found.append(found[-1].copy(tmp_path_factory.mktemp("gold") / "lake"))
        gold.catch_up(lake.spark, found[-1].root, batch)
    return found


@pytest.fixture
def small_data_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs that run as processes of their own use the shared session's settings, too."""
    monkeypatch.setenv("SPARK_CONF_DIR", for_small_data(tmp_path)["SPARK_CONF_DIR"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts jobs of its own may take minutes on a machine with other work."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))
