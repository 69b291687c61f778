"""`make bench-publish`: put results into docs/performance.md, from one run or from its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench import page
from bench.processes import ROOT
from bench.results import Results, read

_SAME = ("commit", "engine", "processor", "cores", "python", "java", "broker")


def merged(parts: list[Results]) -> Results:
    """All lines of the parts; of a load that was measured twice, the last lines.

    Raises:
        typer.BadParameter: they do not come from the same program on the same machine, or were
            not compiled.
    """
    first = parts[0].environment
    if (engine := first.get("engine", "unknown")) != "compiled":
        raise typer.BadParameter(f"the engine was not compiled but {engine}: run `make setup`")
    for part in parts[1:]:
        for name in _SAME:
            found = part.environment[name]
            if found != first[name]:
                raise typer.BadParameter(
                    f"the results differ in {name}: {first[name]} and {found}; figures in one "
                    "table must come from one commit on one machine"
                )
    # By load: a ratio is only between figures of one run.
    by_load = {load: part for part in parts for load in part.loads()}
    lines = [line for load, part in by_load.items() for line in part.lines if line.load == load]
    return Results(first, lines)


def main(results: Annotated[list[Path], typer.Argument(help="Files of bench/results.")]) -> None:
    """Write docs/performance.json, the charts, and the table in docs/performance.md."""
    page.publish(merged([read(path) for path in results]), ROOT / "docs")


if __name__ == "__main__":
    typer.run(main)
