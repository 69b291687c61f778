"""The charts of docs/performance.md, as SVG."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from bench.results import Line, Results

_RATE = "per_second"


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw what there are figures for; the files that were written."""
    mpl.use("svg")
    # Equal results give equal files.
    mpl.rcParams["svg.hashsalt"] = "ringfaust"
    rates = [line for line in results.lines if _RATE in line.names() and not line.load.rate]
    latencies = [line for line in results.lines if line.load.kind == "latency"]
    drawn = []
    if rates:
        drawn.append(folder / "performance-rates.svg")
        _bars(rates, _RATE, "messages/s", drawn[-1])
    if latencies:
        drawn.append(folder / "performance-latency.svg")
        _bars(latencies, "p50_ms", "ms from send to receive, median", drawn[-1])
    return drawn


def _bars(lines: list[Line], figure: str, label: str, path: Path) -> None:
    """One group of bars for each load, one bar for each peer, whiskers over all rounds."""
    loads = list(dict.fromkeys(line.load for line in lines))
    peers = list(dict.fromkeys(line.peer for line in lines))
    figsize = (8.0, 1.0 + 0.2 * len(lines) + 0.2 * len(loads))
    height = 0.8 / len(peers)
    with plt.style.context("tableau-colorblind10"):
        canvas, axes = plt.subplots(figsize=figsize, layout="constrained")
        for number, peer in enumerate(peers):
            own = [line for line in lines if line.peer == peer and figure in line.names()]
            found = [line.summary(figure) for line in own]
            axes.barh(
                [loads.index(line.load) + number * height for line in own],
                [summary.median for summary in found],
                height,
                xerr=[
                    [summary.median - summary.least for summary in found],
                    [summary.most - summary.median for summary in found],
                ],
                label=peer,
            )
        axes.set_yticks(
            [number + height * (len(peers) - 1) / 2 for number in range(len(loads))],
            [load.title for load in loads],
        )
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.legend()
        canvas.savefig(path, metadata={"Date": None})
        plt.close(canvas)
