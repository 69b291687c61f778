"""`ringfaust scenario`: one line a file; for one that fails, the step and what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.markup import escape

from ringfaust.scenario.grammar import Scenario
from ringfaust.scenario.memory import MemoryScenarioHost
from ringfaust.scenario.player import Difference, Host, play
from ringfaust.scenario.reading import BadScenario, load


class _Stage(Protocol):
    """Gives a host for each file, and ends what it started."""

    capabilities: frozenset[str]

    def host(self) -> Host: ...

    def close(self) -> None: ...


class _MemoryStage:
    capabilities = MemoryScenarioHost.capabilities

    def host(self) -> Host:
        return MemoryScenarioHost()

    def close(self) -> None:
        pass


def _faust_stage(bootstrap_servers: str | None) -> _Stage:
    from ringfaust.scenario.kafka import FaustStage  # noqa: PLC0415 - Kafka only if asked for

    return FaustStage(bootstrap_servers)


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
    open_stage: Callable[[], _Stage] = (
        _MemoryStage if host == "memory" else lambda: _faust_stage(bootstrap_servers)
    )
    stage = open_stage()
    try:
        verdicts = [_one(scenario, stage, out) for scenario in scenarios]
    finally:
        stage.close()
    failed, skipped = verdicts.count("fails"), verdicts.count("skipped")
    out.print(f"{len(verdicts) - failed - skipped} hold, {failed} fail, {skipped} skipped ({host})")
    return 1 if failed or (strict and skipped) else 0


def _one(scenario: Scenario, stage: _Stage, out: Console) -> str:
    lacking = scenario.needs() - stage.capabilities
    if lacking:
        out.print(f"skipped  {scenario.id}: this host has no {escape(', '.join(sorted(lacking)))}")
        return "skipped"
    try:
        play(scenario, stage.host())
    except Difference as difference:
        out.print(f"[red]fails[/]    {scenario.id}: {escape(scenario.says)}")
        out.print(escape(f"         line {difference.line}, {difference.step}: {difference.what}"))
        out.print(escape(f"         expected {difference.expected}"))
        out.print(escape(f"         happened {difference.happened}"))
        return "fails"
    out.print(f"[green]holds[/]    {scenario.id}: {escape(scenario.says)}")
    return "holds"
