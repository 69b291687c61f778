"""An application and a worker on the shared broker; each test uses queues of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringfaust.client.connection import ConnectOptions
from ringfaust.testing import MemoryBroker
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application
from tests.client.harness import ClientHarness, new_application


@pytest.fixture(scope="package")
def app(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    application = new_application(tmp_path_factory.mktemp("client"), broker)
    application.new_worker()
    yield application
    application.end()


@pytest.fixture
def harness(app: Application, request: pytest.FixtureRequest) -> ClientHarness:
    return ClientHarness(app, request.node.name.replace("[", "-").rstrip("]"))


@pytest.fixture
def memory() -> Iterator[MemoryBroker]:
    queues = {
        "routes": [{"topic": name, "queue": name} for name in ("orders", "invoices")],
        "queues": {"orders": {}, "invoices": {}},
    }
    with MemoryBroker(queues, application="shop") as broker:
        yield broker


@pytest.fixture
def where(memory: MemoryBroker) -> ConnectOptions:
    """How its clients connect."""
    return {"bootstrap_servers": memory.bootstrap_servers, "application": "shop"}
