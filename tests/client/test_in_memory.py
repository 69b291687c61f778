"""The client's own tests, on a `MemoryBroker` in place of a worker and a broker.

What is missing here is about what only Kafka has: outages, killed workers, ACLs.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, SimpleNamespace

import pytest

from ringfaust.testing import MemoryBroker
from tests.client import (
    test_choices,
    test_consumer,
    test_producer,
    test_session,
    test_sync,
    test_two_phase,
)
from tests.client.harness import PARTITIONS, ClientHarness, queues_of

_OF_KAFKA = {
    "test_a_transaction_that_fails_between_two_sends_has_no_effect",
    "test_a_message_that_is_sent_again_after_an_unknown_outcome_comes_in_once",
    "test_a_session_whose_consumer_timed_out_commits_nothing",
}
_MODULES = (
    test_choices, test_consumer, test_producer, test_session, test_sync, test_two_phase,
)  # fmt: skip


def _without_kafka(test: FunctionType) -> FunctionType:
    """The same test, without the mark that it starts a broker."""
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__)
    marks = [each for each in getattr(test, "pytestmark", ()) if each.name != "kafka"]
    copy.__dict__["pytestmark"] = marks
    return copy


_TESTS = {
    name: _without_kafka(each)
    for module in _MODULES
    for name, each in vars(module).items()
    if name.startswith("test_") and "harness" in each.__code__.co_varnames and name not in _OF_KAFKA
}
globals().update(_TESTS)


@pytest.fixture
def harness(request: pytest.FixtureRequest) -> Iterator[ClientHarness]:
    with MemoryBroker(queues_of("memory"), application="memory", partitions=PARTITIONS) as broker:
        app = SimpleNamespace(
            inputs=["to-memory", "keyed-memory"], servers=broker.bootstrap_servers,
            worker_config=SimpleNamespace(application="memory"),
        )  # fmt: skip
        harness = ClientHarness(app, "a")
        yield harness


def test_most_of_the_clients_tests_are_here() -> None:
    assert len(_TESTS) > 40
