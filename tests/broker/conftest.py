"""Applications with the queues that a module of tests declares as QUEUES."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import application
from tests.chaos.harness import Application
from tests.chaos.load import TOPIC


@pytest.fixture
def topic(tmp_path: Path) -> str:
    """For the load of one test."""
    return f"{TOPIC}-{tmp_path.name}"


@pytest.fixture
def app(
    broker: EmbeddedBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Application]:
    """Without a worker, for one test."""
    with application(broker, tmp_path, request.module.QUEUES) as app:
        yield app


@pytest.fixture(scope="module")
def running(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Application]:
    """With a worker, for tests that do not meet in a queue."""
    with application(broker, tmp_path_factory.mktemp("running"), request.module.QUEUES) as app:
        app.new_worker()
        yield app
