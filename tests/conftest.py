"""What all tests share."""

from collections.abc import Iterator

import pytest

from ringfaust.app.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """One real broker for all tests; each test takes topics of its own."""
    with EmbeddedBroker() as running:
        yield running
