"""What all tests share: one broker for each pytest process, and which test needs what."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ringfaust.config.environment import drop_variables
from ringfaust.testing.broker import EmbeddedBroker

# A shell that starts the tests in the background makes them ignore Ctrl-C, and so does every
# process that they start. Some tests send Ctrl-C to such a process.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# SIGTERM ends the tests like Ctrl-C. Otherwise the workers that a test started would keep running.
signal.signal(signal.SIGTERM, signal.default_int_handler)

drop_variables()

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


HERE = Path(__file__).parent
NEEDS_JAVA = {"broker", "spark"}
"""Fixtures that start a Java process."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start Java, and begin with the folders that take longest."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if NEEDS_JAVA & fixtures or item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.java)
    items.sort(key=lambda item: _rank(item.path))


def _rank(path: Path) -> int:
    folder = path.relative_to(HERE).parts[0]
    return _SLOW_FOLDERS.index(folder) if folder in _SLOW_FOLDERS else len(_SLOW_FOLDERS)


_SLOW_FOLDERS = "spark scenarios chaos broker client oracle fuzz model sim".split()
