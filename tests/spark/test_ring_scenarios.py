"""The scenario files on a real ring job, played in parallel, each in its own partition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.reading import load
from ringfaust.testing.scenario.runner import PlayedScenario, play_all
from ringfaust.testing.scenario.spark import SparkHarness

FOLDER = Path(__file__).parents[1] / "scenarios"
SOME = """
    crash prepared-transaction xid-rolled-back-on-restart limits limits-block operator selectors
    durable-subscription multicast-one-full retroactive ring-overflow ring-rollback
    scheduled-into-full-ring redelivery refusals pause-pulling
""".split()
"""One for each partition; `pytest -m slow` plays the rest."""


def play(servers: str, names: Sequence[str]) -> list[PlayedScenario]:
    """The scenarios that do not hold, apart from those that no host supports yet."""
    stage = SparkHarness(servers)
    stage.open()
    try:
        scenarios = [load(FOLDER / f"{name}.yaml") for name in names]
        played = [each for each in scenarios if not each.needs()]
        assert played
        return [each for each in play_all(played, stage) if each.verdict != "holds"]
    finally:
        stage.close()


@pytest.mark.kafka
def test_a_job_plays_some_scenarios_as_written(broker: EmbeddedBroker) -> None:
    assert play(broker.bootstrap_servers, SOME) == []


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_job_plays_all_scenarios_as_written(broker: EmbeddedBroker) -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    assert play(broker.bootstrap_servers, names) == []
