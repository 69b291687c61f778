"""The scenario files on a real ring job, played in parallel, each in its own partition."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.grammar import Scenario
from ringfaust.testing.scenario.reading import load
from ringfaust.testing.scenario.runner import PlayedScenario, play_all
from ringfaust.testing.scenario.spark import SparkHarness
from tests.spark.chosen_scenarios import CHOSEN, FILES, PLAYED


def covered(scenario: Scenario) -> set[tuple[str, str]]:
    """The kinds of step, and the kinds of effect with their reasons."""
    found = set()
    for step in scenario.steps:
        found.add(("step", step.kind))
        if step.kind != "state":
            for kind in ("dispatched", "redelivered", "acked", "returned", "expired"):
                found |= {(kind, "")} if getattr(step.expect, kind) else set()
            for kind in ("evicted", "dead", "refused"):
                found |= {(kind, loss.reason) for loss in getattr(step.expect, kind) if loss.reason}
    return found


def test_the_chosen_scenarios_use_every_step_and_meet_every_reason() -> None:
    by_name = {name: covered(load(path)) for name, path in FILES.items()}
    assert set().union(*by_name.values()) == set().union(*(by_name[name] for name in CHOSEN))


def play(servers: str, names: Sequence[str]) -> list[PlayedScenario]:
    """The scenarios that do not hold, apart from those that no host supports yet."""
    stage = SparkHarness(servers)
    stage.open()
    try:
        scenarios = [load(FILES[name]) for name in names]
        played = [each for each in scenarios if not each.needs()]
        assert played
        return [each for each in play_all(played, stage) if each.verdict != "holds"]
    finally:
        stage.close()


@pytest.mark.kafka
@pytest.mark.usefixtures("small_data_processes")
def test_a_job_plays_some_scenarios_as_written(broker: EmbeddedBroker) -> None:
    assert play(broker.bootstrap_servers, PLAYED) == []


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_job_plays_all_scenarios_as_written(broker: EmbeddedBroker) -> None:
    assert play(broker.bootstrap_servers, sorted(FILES)) == []
