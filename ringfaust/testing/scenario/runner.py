"""Play a list of scenarios on one host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol

from ringfaust.testing.scenario.grammar import Scenario
from ringfaust.testing.scenario.memory import MemoryScenarioHost
from ringfaust.testing.scenario.player import Difference, play


class ScenarioHarness(Protocol):
    """Runs one host and plays scenarios on it."""

    parallel_files: int
    """How many scenarios it plays at once."""

    def play(self, scenario: Scenario) -> None:
        """Play a scenario.

        Raises:
            Difference: an expectation does not hold.
        """

    def close(self) -> None:
        """Stop everything that was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedScenario:
    """How a scenario ended."""

    scenario: Scenario
    verdict: Literal["holds", "fails", "skipped"]
    difference: Difference | None = None
    """The first expectation that failed."""
    missing: Sequence[str] = ()
    """What the host lacks, if the scenario was skipped."""


class _MemoryHarness:
    parallel_files = 1

    def play(self, scenario: Scenario) -> None:
        play(scenario, MemoryScenarioHost())

    def close(self) -> None:
        pass


def open_harness(host: str, bootstrap_servers: str | None) -> ScenarioHarness:
    """Start a host: `memory`, `faust` or `spark`.

    Args:
        host: its name.
        bootstrap_servers: the brokers to use; None starts one.

    Raises:
        RingfaustError: the host does not start.
    """
    # Kafka and Spark are imported only for the hosts that need them.
    if host == "memory":
        return _MemoryHarness()
    if host == "faust":
        from ringfaust.testing.scenario.faust import FaustHarness  # noqa: PLC0415
        from ringfaust.testing.scenario.harness import PARALLEL_FILES  # noqa: PLC0415

        return FaustHarness(bootstrap_servers, parallel_files=PARALLEL_FILES)
    from ringfaust.testing.scenario.spark import SparkHarness  # noqa: PLC0415

    harness = SparkHarness(bootstrap_servers)
    harness.open()
    return harness


def play_all(scenarios: Sequence[Scenario], harness: ScenarioHarness) -> Iterator[PlayedScenario]:
    """Play the scenarios and yield how each ended, in their order.

    Scenarios with a crash start first: those that run side by side share one crash.
    """
    with ThreadPoolExecutor(harness.parallel_files) as pool:
        order = sorted(range(len(scenarios)), key=lambda at: not scenarios[at].crashes())
        played = {at: pool.submit(_play, scenarios[at], harness) for at in order}
        for at in range(len(scenarios)):
            yield played[at].result()


def _play(scenario: Scenario, harness: ScenarioHarness) -> PlayedScenario:
    if missing := scenario.needs():
        return PlayedScenario(scenario=scenario, verdict="skipped", missing=sorted(missing))
    try:
        harness.play(scenario)
    except Difference as difference:
        return PlayedScenario(scenario=scenario, verdict="fails", difference=difference)
    return PlayedScenario(scenario=scenario, verdict="holds")
