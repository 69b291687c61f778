"""`ringfaust scenario`: print one line for each file, and for a failed one the step that failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from ringfaust.terminal import Terminal
from ringfaust.testing.scenario.reading import BadScenario, load
from ringfaust.testing.scenario.runner import PlayedScenario, open_harness, play_all


def run(
    files: Sequence[Path], host: str, strict: bool, bootstrap_servers: str | None = None
) -> int:
    """Play the files on a host.

    Returns:
        0 if all hold, 1 if one fails (or, if strict, is skipped), 2 if a file is not valid.
    """
    out = Terminal(highlight=False, soft_wrap=True)
    try:
        scenarios = [load(path) for path in files]
    except BadScenario as error:
        Terminal(stderr=True, highlight=False, soft_wrap=True).print(escape(str(error)))
        return 2
    harness = open_harness(host, bootstrap_servers)
    verdicts = []
    try:
        for played in play_all(scenarios, harness):
            verdicts.append(played.verdict)
            out.print("\n".join(_lines(played)))
    finally:
        harness.close()
    failed, skipped = verdicts.count("fails"), verdicts.count("skipped")
    out.print(f"{len(verdicts) - failed - skipped} hold, {failed} fail, {skipped} skipped ({host})")
    return 1 if failed or (strict and skipped) else 0


def _lines(played: PlayedScenario) -> list[str]:
    scenario, difference = played.scenario, played.difference
    if played.verdict == "skipped":
        missing = escape(", ".join(played.missing))
        return [f"skipped  {scenario.id}: this host has no {missing}"]
    if difference is None:
        return [f"[green]holds[/]    {scenario.id}: {escape(scenario.says)}"]
    return [
        f"[red]fails[/]    {scenario.id}: {escape(scenario.says)}",
        escape(f"         line {difference.line}, {difference.step}: {difference.what}"),
        escape(f"         expected {difference.expected}"),
        escape(f"         happened {difference.happened}"),
    ]
