"""All scenarios on a worker, with the oldest and the newest version of Kafka that we support.

All other tests use the default version.
"""

from __future__ import annotations

import pytest

from ringfaust.java import KafkaVersion
from ringfaust.java.jars import kafka
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.faust import FaustHarness
from ringfaust.testing.scenario.harness import PARALLEL_FILES
from tests.scenarios.test_scenarios import FILES, failed

OLDEST, *_, NEWEST = KafkaVersion


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_all_scenarios_hold_on(version: KafkaVersion) -> None:
    with EmbeddedBroker(bundle=kafka(version)) as broker:
        stage = FaustHarness(broker.bootstrap_servers, parallel_files=PARALLEL_FILES)
        try:
            assert failed(FILES, stage) == []
        finally:
            stage.close()
