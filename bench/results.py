"""The readings of a run: kept as JSON, summed up as medians with their spread."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.model import Figures, Load


class Summary(NamedTuple):
    """The readings of one figure over all rounds."""

    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Line:
    """What one peer did with one load, round by round."""

    load: Load
    peer: str
    rounds: list[Figures] = field(default_factory=list)

    def names(self) -> list[str]:
        """The figures that there are."""
        return list(self.rounds[0]) if self.rounds else []

    def summary(self, figure: str) -> Summary:
        """Median, least and most of a figure."""
        values = [figures[figure] for figures in self.rounds]
        return Summary(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Results:
    """All lines of a run, and where it ran."""

    environment: dict[str, Any]
    lines: list[Line]

    def line(self, load: Load, peer: str) -> Line | None:
        """What a peer did with a load, if it did."""
        return next((line for line in self.lines if (line.load, line.peer) == (load, peer)), None)

    def loads(self) -> list[Load]:
        """The loads that were carried, in order."""
        return list(dict.fromkeys(line.load for line in self.lines))

    def ratios(self, load: Load, peer: str, figure: str = "per_second") -> Iterator[float]:
        """ringfaust's figure over the peer's, round by round."""
        ours, theirs = self.line(load, "ringfaust"), self.line(load, peer)
        if ours and theirs:
            for our, their in zip(ours.rounds, theirs.rounds, strict=False):
                if figure in our and figure in their:
                    yield our[figure] / their[figure]

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "environment": self.environment,
            "lines": [
                {
                    "workload": line.load.workload,
                    "variant": line.load.variant,
                    "peer": line.peer,
                    "load": asdict(line.load),
                    "median": {name: line.summary(name).median for name in line.names()},
                    "rounds": line.rounds,
                }
                for line in self.lines
                if line.rounds
            ],
        }
        path.write_text(json.dumps(content, indent=1) + "\n")


def read(path: Path) -> Results:
    """Read what `write` has written."""
    content = json.loads(path.read_text())
    lines: Sequence[Any] = content["lines"]
    return Results(
        content["environment"],
        [Line(Load(**line["load"]), line["peer"], line["rounds"]) for line in lines],
    )
