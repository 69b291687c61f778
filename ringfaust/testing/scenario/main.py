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


class _Stage(Protocol):
    """Plays files, and ends what it started."""

    capabilities: frozenset[str]
    lanes: int
    """How many files it plays at once."""

    def play(self, scenario: Scenario) -> None: ...

    def close(self) -> None: ...


class _MemoryStage:
    capabilities = MemoryScenarioHost.capabilities
    lanes = 1

    def play(self, scenario: Scenario) -> None:
        play(scenario, MemoryScenarioHost())

    def close(self) -> None:
        pass


def _open_stage(host: str, bootstrap_servers: str | None) -> _Stage:
    """Kafka and Spark are imported only if they are asked for."""
    if host == "memory":
        return _MemoryStage()
    if host == "faust":
        from ringfaust.testing.scenario.faust import FaustStage  # noqa: PLC0415

        return FaustStage(bootstrap_servers)
    from ringfaust.testing.scenario.spark import SparkStage  # noqa: PLC0415

    stage = SparkStage(bootstrap_servers)
    stage.open()
    return stage


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
    stage = _open_stage(host, bootstrap_servers)
    verdicts = []
    try:
        for verdict, told in play_all(scenarios, stage):
            verdicts.append(verdict)
            out.print("\n".join(told))
    finally:
        stage.close()
    failed, skipped = verdicts.count("fails"), verdicts.count("skipped")
    out.print(f"{len(verdicts) - failed - skipped} hold, {failed} fail, {skipped} skipped ({host})")
    return 1 if failed or (strict and skipped) else 0


def play_all(scenarios: Sequence[Scenario], stage: _Stage) -> Iterator[tuple[str, list[str]]]:
    """The verdict on each, in their order, and what to tell of it.

    A file with a crash goes before the others: side by side they share one.
    """
    with ThreadPoolExecutor(stage.lanes) as pool:
        order = sorted(range(len(scenarios)), key=lambda at: not scenarios[at].crashes())
        played = {at: pool.submit(_one, scenarios[at], stage) for at in order}
        for at in range(len(scenarios)):
            yield played[at].result()


def _one(scenario: Scenario, stage: _Stage) -> tuple[str, list[str]]:
    lacking = scenario.needs() - stage.capabilities
    if lacking:
        no = escape(", ".join(sorted(lacking)))
        return "skipped", [f"skipped  {scenario.id}: this host has no {no}"]
    try:
        stage.play(scenario)
    except Difference as difference:
        return "fails", [
            f"[red]fails[/]    {scenario.id}: {escape(scenario.says)}",
            escape(f"         line {difference.line}, {difference.step}: {difference.what}"),
            escape(f"         expected {difference.expected}"),
            escape(f"         happened {difference.happened}"),
        ]
    return "holds", [f"[green]holds[/]    {scenario.id}: {escape(scenario.says)}"]
