"""What all tests share."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from ringfaust.testing.broker import EmbeddedBroker

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them all that
# they start: some of that is tested with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Told to end, it ends as by Ctrl-C. Else the workers that a test has started would stay.
signal.signal(signal.SIGTERM, signal.default_int_handler)


# What a change is judged by is the same each time; to look for more is another matter.
settings.register_profile("same", derandomize=True)
if os.environ.get("RINGFAUST_HYPOTHESIS") != "deep":
    settings.load_profile("same")


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """One real broker for all tests; each test takes topics of its own."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let what aiokafka drops unasked complain here, at the end of its own test.

    Left to chance its traceback is printed in the middle of some later compile, on which CPython
    3.11 trips ("AST constructor recursion depth mismatch").
    """
    yield
    if request.node.get_closest_marker("kafka"):
        gc.collect()
