"""The charts of the report, each for light and dark pages."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from ringfaust.spark.audit.report.figures import BINS_A_DECADE, MAX_HANDOVERS, Figures

_OTHERS = "all others"
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_AGES_MS = (
    *(step * power for power in (1, 10, 100) for step in (1, 2, 5)),
    *(step * 1_000 for step in (1, 1.5, 2, 3, 5, 10, 20, 30)),
    *(step * 60_000 for step in (1, 2, 5, 10, 20, 30)),
    *(step * 3_600_000 for step in (1, 2, 3, 6, 12)),
    *(step * 86_400_000 for step in (1, 2, 4, 7, 14, 30, 100, 365)),
)
"""Ages at which an axis may have a tick."""
_MAX_AGE_TICKS = 6
_NAME_CHARS = 24
_COUNT = "{x:,.10g}"


_GREY = "#7d8691"
"""Of what is not one of the series."""
_ALWAYS = {
    "figure.figsize": (5.6, 3.6), "figure.dpi": 220, "figure.constrained_layout.use": True,
    "font.size": 9, "axes.labelsize": 10, "axes.axisbelow": True,
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False,
    "axes.grid": True, "axes.grid.axis": "y",
    "xtick.labelsize": 10, "ytick.labelsize": 10, "xtick.major.size": 0, "ytick.major.size": 0,
    "legend.frameon": False, "legend.fontsize": 9, "legend.handlelength": 1,
    "legend.columnspacing": 1.2,
    "text.parse_math": False,  # producers choose the names of queues
}  # fmt: skip


def _theme(paper: str, ink: str, faint: str, *series: str) -> Any:
    inked = ("axes.labelcolor", "text.color", "xtick.color", "ytick.color")
    return {
        **_ALWAYS,
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), paper),
        **dict.fromkeys(inked, ink),
        **dict.fromkeys(("axes.edgecolor", "grid.color"), faint),
        "axes.prop_cycle": cycler(color=series),
    }


THEMES = {
    "light": _theme(
        "#ffffff", "#1f2328", "#d8dee4",
        "#0b6bcb", "#d9730d", "#1a8754", "#a13d9a", "#b58900", "#c4314b",
    ),
    "dark": _theme(
        "#161b22", "#e6edf3", "#30363d",
        "#58a6ff", "#f0a35e", "#4cc38a", "#d58fd0", "#e3c14f", "#f47b8a",
    ),
}  # fmt: skip
"""Matplotlib's settings for light and dark pages."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of the report."""

    name: str
    """File name without extension."""
    title: str
    caption: str
    """The content in words and figures; also the alternative text."""
    draw: Callable[[Axes, Figures], None]


def charts(figures: Figures) -> list[Chart]:
    """All charts that have data."""
    low, middle, high = map(duration, figures.age_ms)
    held = int(figures.depth.iloc[-1].sum())
    most = int(figures.depth.sum(axis=1).max())
    total = figures.evictions.sum(axis=1)
    found = [
        Chart(
            "depth", "Depth",
            f"Messages held in all queues, by state. Maximum {most:,}, at the end {held:,}.",
            _depth,
        ),
    ]  # fmt: skip
    if len(figures.ages):
        found += [
            Chart(
                "eviction-rate", "Eviction rate",
                f"Evictions per second, in steps of {duration(figures.step_ms)}. Maximum "
                f"{total.max():,.0f} per second.",
                _evictions,
            ),
            Chart(
                "age-at-eviction", "Age at eviction",
                f"Age of messages when they were evicted. Median {low}, 95th percentile {middle}, "
                f"99th percentile {high}.",
                _ages,
            ),
        ]  # fmt: skip
    if len(figures.lifetimes):
        found.append(Chart(
            "time-to-overwrite", "Time to overwrite",
            "Time until a newer message evicts an older one: the median, and the range of the "
            "middle 80 %, for the queues with the most evictions.",
            _lifetimes,
        ))  # fmt: skip
    if deliveries := int(figures.handovers.sum()):
        again = int(figures.handovers.loc[2:].sum())
        found.append(Chart(
            "redeliveries", "Redeliveries",
            f"{deliveries:,} deliveries, {again:,} of them ({again / deliveries:.1%}) "
            "redeliveries.",
            _handovers,
        ))  # fmt: skip
    return found


def png(chart: Chart, figures: Figures, theme: str) -> bytes:
    """Draw the chart as a PNG image, in one of the THEMES."""
    with mpl.rc_context(THEMES[theme]):
        figure = Figure()
        chart.draw(figure.add_subplot(), figures)
        out = io.BytesIO()
        figure.savefig(out, format="png")
    return out.getvalue()


# --- one function per chart ---------------------------------------------------------------------


def _depth(axes: Axes, figures: Figures) -> None:
    depth = figures.depth
    shown = depth[[name for name in depth.columns if depth[name].any()] or ["ready"]]
    _over_time(axes, shown, list(shown.columns))
    axes.set_ylabel("messages")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _evictions(axes: Axes, figures: Figures) -> None:
    rates = figures.evictions.loc[:, figures.evictions.any().to_numpy()]
    labels = list(map(_name, rates.columns))
    _over_time(axes, rates, labels)
    axes.set_ylabel("evictions per second")


def _ages(axes: Axes, figures: Figures) -> None:
    ages = figures.ages
    low = ages["low_ms"].to_numpy()
    axes.bar(
        low, ages["count"], width=low * (10 ** (1 / BINS_A_DECADE) - 1), align="edge",
        color="C0", edgecolor=axes.get_facecolor(), linewidth=0.8,
    )  # fmt: skip
    top = float(ages["count"].max())
    for row, (share, age) in enumerate(zip(("half", "95 %", "99 %"), figures.age_ms, strict=True)):
        # Each line is a little higher than the one before, because they may be close together.
        height = top * (1.1 + 0.1 * row)
        axes.vlines(max(age, 1), 0, height, color=_GREY, linewidth=1)
        text = f"{share} younger than {duration(age)} "
        axes.annotate(text, (max(age, 1), height), ha="right", va="top")
    axes.set_ylim(0, top * 1.35)
    axes.yaxis.set_major_formatter(_COUNT)
    _age_axis(axes)
    axes.set_ylabel("evicted messages")
    axes.set_xlabel("age at eviction (log scale)")


def _lifetimes(axes: Axes, figures: Figures) -> None:
    lifetimes = figures.lifetimes.iloc[::-1]
    rows = np.arange(len(lifetimes))
    colours = [_GREY if pd.isna(name) else "C0" for name in lifetimes["queue"]]
    low, high = lifetimes["p10"].clip(lower=1), lifetimes["p90"].clip(lower=1)
    axes.hlines(rows, low, high, color=colours, linewidth=7, alpha=0.45)
    axes.scatter(lifetimes["p50"].clip(lower=1), rows, color=colours, s=60, zorder=3)
    for row, middle in zip(rows, lifetimes["p50"], strict=True):
        axes.annotate(
            duration(middle), (max(middle, 1), row), textcoords="offset points", xytext=(0, 8),
            ha="center",
        )  # fmt: skip
    axes.set_yticks(rows, [_name(name) for name in lifetimes["queue"]])
    axes.set_ylim(-0.6, len(lifetimes) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    _age_axis(axes)
    axes.set_xlabel("from send to eviction (log scale)")


def _handovers(axes: Axes, figures: Figures) -> None:
    counts = figures.handovers
    numbers = list(range(1, max(3, int(counts.index.max())) + 1))
    values = [int(counts.get(number, 0)) for number in numbers]
    colours = [_GREY, *["C1"] * (len(numbers) - 1)]
    bars = axes.bar(range(len(numbers)), values, color=colours, width=0.7)
    axes.bar_label(bars, [f"{value:,}" for value in values], padding=2)
    labels = [f"{n}" if n < MAX_HANDOVERS else f"{n} or later" for n in numbers]
    axes.set_xticks(range(len(numbers)), labels)
    axes.yaxis.set_major_formatter(_COUNT)
    axes.set_ylabel("deliveries")
    axes.set_xlabel("number of the delivery of a message")
    axes.set_ylim(0, max(values) * 1.12)


# --- shared parts -------------------------------------------------------------------------------


def _over_time(axes: Axes, values: pd.DataFrame, labels: Sequence[str]) -> None:
    """Stack columns. The last row is repeated, so that the last step is drawn with its width."""
    index = values.index
    step = index[1] - index[0] if len(index) > 1 else 1
    whole = values.reindex([*index, index[-1] + step], method="ffill")
    colours = [_GREY if label == _OTHERS else f"C{n}" for n, label in enumerate(labels)]
    axes.stackplot(
        pd.to_datetime(whole.index, unit="ms"), whole.to_numpy().T, labels=labels, colors=colours,
        linewidth=0, step="post",
    )  # fmt: skip
    locator = mdates.AutoDateLocator(maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    clock = mdates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(clock)
    axes.yaxis.set_major_formatter(_COUNT)
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time (UTC)")
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)


def _age_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    within = [ms for ms in _AGES_MS if low <= ms <= high]
    every = math.ceil(len(within) / _MAX_AGE_TICKS) or 1
    axes.set_xticks(within[::every], [duration(ms) for ms in within[::every]])
    axes.xaxis.set_minor_locator(NullLocator())


def _name(queue: object) -> str:
    """A queue's name, shortened."""
    if not isinstance(queue, str):
        return _OTHERS
    return queue if len(queue) <= _NAME_CHARS else queue[: _NAME_CHARS - 1] + "\u2026"


def duration(ms: float) -> str:
    """A duration in the largest unit that fits."""
    for unit, length in _UNITS_MS:
        if ms >= length:
            return f"{ms / length:.3g} {unit}"
    return f"{ms:.0f} ms"
