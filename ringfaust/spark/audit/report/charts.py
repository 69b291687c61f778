"""The charts of the report, each for light and dark pages."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator, NullLocator

from ringfaust.spark.audit.report.figures import BINS_A_DECADE, MAX_HANDOVERS, Figures

DPI = 220
_INCHES = (5.6, 3.6)
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
_CLOCKS = (
    (300_000, "%H:%M:%S"), (43_200_000, "%H:%M"), (5 * 86_400_000, "%d %b %H:%M"),
    (math.inf, "%d %b"),
)  # fmt: skip
"""Format of a time, by the longest span of the axis in ms that it is used for."""
_SHORT_MS = 4_000
"""Up to this span, ticks may be less than a second apart and are printed with milliseconds."""
_NAME_CHARS = 24


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a page."""

    name: str
    paper: str
    ink: str
    faint: str
    series: tuple[str, ...]
    others: str


LIGHT = Theme(
    "light", "#ffffff", "#1f2328", "#d8dee4",
    ("#0b6bcb", "#d9730d", "#1a8754", "#a13d9a", "#b58900", "#c4314b"), "#9aa4af",
)  # fmt: skip
DARK = Theme(
    "dark", "#161b22", "#e6edf3", "#30363d",
    ("#58a6ff", "#f0a35e", "#4cc38a", "#d58fd0", "#e3c14f", "#f47b8a"), "#6e7681",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of the report."""

    name: str
    """File name without extension."""
    title: str
    caption: str
    """The content in words and figures; also the alternative text."""
    draw: Callable[[Axes, Theme], None]


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
            lambda axes, theme: _depth(axes, theme, figures),
        ),
    ]  # fmt: skip
    if len(figures.ages):
        found += [
            Chart(
                "eviction-rate", "Eviction rate",
                f"Evictions per second, in steps of {duration(figures.step_ms)}. Maximum "
                f"{total.max():,.0f} per second.",
                lambda axes, theme: _evictions(axes, theme, figures),
            ),
            Chart(
                "age-at-eviction", "Age at eviction",
                f"Age of messages when they were evicted. Median {low}, 95th percentile {middle}, "
                f"99th percentile {high}.",
                lambda axes, theme: _ages(axes, theme, figures),
            ),
        ]  # fmt: skip
    if len(figures.lifetimes):
        found.append(Chart(
            "time-to-overwrite", "Time to overwrite",
            "Time until a newer message evicts an older one: the median, and the range of the "
            "middle 80 %, for the queues with the most evictions.",
            lambda axes, theme: _lifetimes(axes, theme, figures),
        ))  # fmt: skip
    if deliveries := int(figures.handovers.sum()):
        again = int(figures.handovers.loc[2:].sum())
        found.append(Chart(
            "redeliveries", "Redeliveries",
            f"{deliveries:,} deliveries, {again:,} of them ({again / deliveries:.1%}) "
            "redeliveries.",
            lambda axes, theme: _handovers(axes, theme, figures),
        ))  # fmt: skip
    return found


def png(chart: Chart, theme: Theme) -> bytes:
    """Draw the chart as a PNG image."""
    figure = Figure(figsize=_INCHES, dpi=DPI, facecolor=theme.paper, layout="constrained")
    axes = figure.add_subplot(facecolor=theme.paper)
    axes.tick_params(colors=theme.ink, labelsize=10, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(theme.faint)
    axes.grid(axis="y", color=theme.faint, linewidth=0.8)
    axes.set_axisbelow(True)
    chart.draw(axes, theme)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(theme.ink)
        label.set_fontsize(10)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


# --- one function per chart ---------------------------------------------------------------------


def _depth(axes: Axes, theme: Theme, figures: Figures) -> None:
    depth = figures.depth
    shown = depth[[name for name in depth.columns if depth[name].any()] or ["ready"]]
    _over_time(axes, figures, shown, list(shown.columns), theme.series)
    axes.set_ylabel("messages")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _legend(axes, theme)


def _evictions(axes: Axes, theme: Theme, figures: Figures) -> None:
    rates = figures.evictions.loc[:, figures.evictions.any().to_numpy()]
    labels = list(map(_name, rates.columns))
    colours = [theme.others if label == _OTHERS else theme.series[i % len(theme.series)]
               for i, label in enumerate(labels)]  # fmt: skip
    _over_time(axes, figures, rates, labels, colours)
    axes.set_ylabel("evictions per second")
    _legend(axes, theme)


def _ages(axes: Axes, theme: Theme, figures: Figures) -> None:
    ages = figures.ages
    low = ages["low_ms"].to_numpy()
    axes.bar(
        low, ages["count"], width=low * (10 ** (1 / BINS_A_DECADE) - 1), align="edge",
        color=theme.series[0], edgecolor=theme.paper, linewidth=0.8,
    )  # fmt: skip
    top = float(ages["count"].max())
    for row, (share, age) in enumerate(zip(("half", "95 %", "99 %"), figures.age_ms, strict=True)):
        # Each line is a little higher than the one before, because they may be close together.
        height = top * (1.1 + 0.1 * row)
        axes.vlines(max(age, 1), 0, height, color=theme.ink, linewidth=1)
        axes.annotate(
            f"{share} younger than {duration(age)} ", (max(age, 1), height), color=theme.ink,
            fontsize=9, ha="right", va="top",
        )  # fmt: skip
    axes.set_ylim(0, top * 1.35)
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    _age_axis(axes)
    axes.set_ylabel("evicted messages")
    axes.set_xlabel("age at eviction (log scale)")


def _lifetimes(axes: Axes, theme: Theme, figures: Figures) -> None:
    lifetimes = figures.lifetimes.iloc[::-1]
    rows = np.arange(len(lifetimes))
    colours = [theme.others if pd.isna(name) else theme.series[0] for name in lifetimes["queue"]]
    low, high = lifetimes["p10"].clip(lower=1), lifetimes["p90"].clip(lower=1)
    axes.hlines(rows, low, high, color=colours, linewidth=7, alpha=0.45)
    axes.scatter(lifetimes["p50"].clip(lower=1), rows, color=colours, s=60, zorder=3)
    for row, middle in zip(rows, lifetimes["p50"], strict=True):
        axes.annotate(
            duration(middle), (max(middle, 1), row), textcoords="offset points", xytext=(0, 8),
            ha="center", fontsize=9, color=theme.ink,
        )  # fmt: skip
    axes.set_yticks(rows, [_name(name) for name in lifetimes["queue"]])
    axes.set_ylim(-0.6, len(lifetimes) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=theme.faint, linewidth=0.8)
    _age_axis(axes)
    axes.set_xlabel("from send to eviction (log scale)")


def _handovers(axes: Axes, theme: Theme, figures: Figures) -> None:
    counts = figures.handovers
    numbers = list(range(1, max(3, int(counts.index.max())) + 1))
    values = [int(counts.get(number, 0)) for number in numbers]
    colours = [theme.others, *[theme.series[1]] * (len(numbers) - 1)]
    bars = axes.bar(range(len(numbers)), values, color=colours, width=0.7)
    axes.bar_label(bars, [f"{value:,}" for value in values], fontsize=9, color=theme.ink, padding=2)
    last = f"{MAX_HANDOVERS} or later"
    labels = [_ordinal(n) if n < MAX_HANDOVERS else last for n in numbers]
    axes.set_xticks(range(len(numbers)), labels)
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.set_ylabel("deliveries")
    axes.set_xlabel("delivery of the same message")
    axes.set_ylim(0, max(values) * 1.12)


# --- shared parts -------------------------------------------------------------------------------


def _over_time(
    axes: Axes,
    figures: Figures,
    values: pd.DataFrame,
    labels: Sequence[str],
    colours: Sequence[str],
) -> None:
    """Stack columns. The last row is repeated, so that the last step is drawn with its width."""
    index = values.index
    step = index[1] - index[0] if len(index) > 1 else 1
    times: Any = [datetime.fromtimestamp(ms / 1000, UTC) for ms in (*index, index[-1] + step)]
    heights = [[*column, column.iloc[-1]] for _, column in values.items()]
    axes.stackplot(times, heights, labels=labels, colors=colours, linewidth=0, step="post")
    locator = mdates.AutoDateLocator(minticks=3, maxticks=5)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_clock(figures.end_ms - figures.begin_ms))
    axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    begin = datetime.fromtimestamp(figures.begin_ms / 1000, UTC)
    axes.set_xlabel(f"time (UTC), from {begin:%Y-%m-%d %H:%M}")


def _clock(span_ms: int) -> Formatter:
    if span_ms <= _SHORT_MS:
        return FuncFormatter(_with_ms)
    form = next(form for longest, form in _CLOCKS if span_ms <= longest)
    return mdates.DateFormatter(form)  # type: ignore[no-untyped-call]


def _with_ms(days: float, _: object) -> str:
    """Format matplotlib's days since 1970."""
    return datetime.fromtimestamp(days * 86_400, UTC).strftime("%H:%M:%S.%f")[:-3]


def _age_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    within = [ms for ms in _AGES_MS if low <= ms <= high]
    every = math.ceil(len(within) / _MAX_AGE_TICKS) or 1
    axes.set_xticks(within[::every], [duration(ms) for ms in within[::every]])
    axes.xaxis.set_minor_locator(NullLocator())


def _legend(axes: Axes, theme: Theme) -> None:
    axes.figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False,
        fontsize=9, labelcolor=theme.ink, handlelength=1, columnspacing=1.2,
    )  # fmt: skip


def _name(queue: object) -> str:
    """A queue's name, shortened and escaped: matplotlib reads text between $ as a formula."""
    if not isinstance(queue, str):
        return _OTHERS
    text = queue if len(queue) <= _NAME_CHARS else queue[: _NAME_CHARS - 1] + "\u2026"
    return text.replace("$", r"\$")


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _thousands(value: float, _: object) -> str:
    if value and abs(value) < 10 and value != int(value):
        return f"{value:.1f}"
    return f"{value:,.0f}"


def duration(ms: float) -> str:
    """A duration in the largest unit that fits."""
    for unit, length in _UNITS_MS:
        if ms >= length:
            return f"{ms / length:.3g} {unit}"
    return f"{ms:.0f} ms"
