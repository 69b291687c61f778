"""What all tests share: one broker for each pytest process, and which test needs what."""

import gc
import os
import signal
from bisect import bisect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from ringfaust.config.environment import drop_variables
from ringfaust.testing.broker import EmbeddedBroker
from tests.legal_effects import watch_memory_hosts

# A shell that starts the tests in the background makes them ignore Ctrl-C, and so does every
# process that they start. Some tests send Ctrl-C to such a process.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# SIGTERM ends the tests like Ctrl-C. Otherwise the workers that a test started would keep running.
signal.signal(signal.SIGTERM, signal.default_int_handler)

drop_variables()
# The contexts of whoever runs the tests must not lead them to another application.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
watch_memory_hosts()

# To compile less costs half of the processor's time in Java processes that live a few minutes.
os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"

# Every run of CI tries the same examples. RINGFAUST_HYPOTHESIS=deep looks for new ones. A busy
# machine is no fault, so nothing is timed.
settings.register_profile("deep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("deep"), derandomize=True)
settings.load_profile("deep" if os.environ.get("RINGFAUST_HYPOTHESIS") == "deep" else "same")


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """One real broker for all tests of this process; each test uses topics of its own."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect garbage at the end of each test that uses Kafka.

    aiokafka drops futures whose exceptions nobody retrieved. Collected at a random moment, their
    traceback may be printed during a later compile, on which CPython 3.11 fails ("AST constructor
    recursion depth mismatch").
    """
    yield
    if request.node.get_closest_marker("kafka"):
        gc.collect()


def pytest_collection_finish() -> None:
    """Let later collections of garbage skip the half million objects of the imports."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Undo it: at exit duckdb counts as leaked what is not collected."""
    gc.unfreeze()


HERE = Path(__file__).parent
NEEDS_JAVA = {"broker", "spark"}
"""Fixtures that start a Java process."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start Java, and begin with the folders that take long."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if NEEDS_JAVA & fixtures or item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.java)
    items.sort(key=lambda item: _rank(item.path))


class _Scheduling(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """All tests of a file run in one process, and all that use Spark in three of the processes.

    Each process that uses Spark starts its own, whose first minutes are its slowest.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        if file.startswith("tests/spark/"):
            return f"tests/spark/{bisect(_SPARK_SCOPES, file)}"
        return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    """Decide which tests run in the same process, whatever `--dist` says."""
    return _Scheduling(config, log)


_SPARK_SCOPES = ["tests/spark/test_lake_", "tests/spark/test_r"]
"""Where the second and the third of them begin: each has about a third of the work."""


def _rank(path: Path) -> int:
    folder = path.relative_to(HERE).parts[0]
    return _SLOW_FOLDERS.index(folder) if folder in _SLOW_FOLDERS else len(_SLOW_FOLDERS)


_SLOW_FOLDERS = [
    "spark", "scenarios", "chaos", "packaging", "native", "docs", "mutants", "broker", "oracle",
    "client", "cli", "fuzz", "model", "sim",
]  # fmt: skip
"""First those with a file that takes minutes: such a file must not be the last one to end."""
