"""`ringfaust scenario`: one line a file; for one that fails, the step and what it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.markup import escape

from ringfaust.testing.scenario.grammar import Scenario
from ringfaust.testing.scenario.memory import MemoryScenarioHost
from ringfaust.testing.scenario.player import Difference, play
from ringfaust.testing.scenario.reading import BadScenario, load


class _Harness(Protocol):
    """Plays files, and ends what it started."""

    capabilities: frozenset[str]
    parallel_files: int
    """How many files it plays at once."""

    def play(self, scenario: Scenario) -> None: ...

    def close(self) -> None: ...


class _MemoryHarness:
    capabilities = MemoryScenarioHost.capabilities
    parallel_files = 1

    def play(self, scenario: Scenario) -> None:
        play(scenario, MemoryScenarioHost())

    def close(self) -> None:
        pass


def _open_harness(host: str, bootstrap_servers: str | None) -> _Harness:
    """Kafka and Spark are imported only if they are asked for."""
    if host == "memory":
        return _MemoryHarness()
    if host == "faust":
        from ringfaust.testing.scenario.faust import FaustHarness  # noqa: PLC0415

        return FaustHarness(bootstrap_servers)
    from ringfaust.testing.scenario.spark import SparkHarness  # noqa: PLC0415

    harness = SparkHarness(bootstrap_servers)
    harness.open()
    return harness


def run(
    files: Sequence[Path], host: str, strict: bool, bootstrap_servers: str | None = None
) -> int:
    """Play the files.

    Exit status: 0 all hold, 1 one fails (or is skipped, if strict), 2 a file is not valid.
    """
    out = Console(highlight=False, soft_wrap=True)
    try:
        scenarios = [load(path) for path in files]
    except BadScenario as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(escape(str(error)))
        return 2
    harness = _open_harness(host, bootstrap_servers)
    verdicts = []
    try:
        for verdict, told in play_all(scenarios, harness):
            verdicts.append(verdict)
            out.print("\n".join(told))
    finally:
        harness.close()
    failed, skipped = verdicts.count("fails"), verdicts.count("skipped")
    out.print(f"{len(verdicts) - failed - skipped} hold, {failed} fail, {skipped} skipped ({host})")
    return 1 if failed or (strict and skipped) else 0


def play_all(scenarios: Sequence[Scenario], harness: _Harness) -> Iterator[tuple[str, list[str]]]:
    """The verdict on each, in their order, and what to tell of it.

    A file with a crash goes before the others: side by side they share one.
    """
    with ThreadPoolExecutor(harness.parallel_files) as pool:
        order = sorted(range(len(scenarios)), key=lambda at: not scenarios[at].crashes())
        played = {at: pool.submit(_one, scenarios[at], harness) for at in order}
        for at in range(len(scenarios)):
            yield played[at].result()


def _one(scenario: Scenario, harness: _Harness) -> tuple[str, list[str]]:
    lacking = scenario.needs() - harness.capabilities
    if lacking:
        no = escape(", ".join(sorted(lacking)))
        return "skipped", [f"skipped  {scenario.id}: this host has no {no}"]
    try:
        harness.play(scenario)
    except Difference as difference:
        return "fails", [
            f"[red]fails[/]    {scenario.id}: {escape(scenario.says)}",
            escape(f"         line {difference.line}, {difference.step}: {difference.what}"),
            escape(f"         expected {difference.expected}"),
            escape(f"         happened {difference.happened}"),
        ]
    return "holds", [f"[green]holds[/]    {scenario.id}: {escape(scenario.says)}"]
