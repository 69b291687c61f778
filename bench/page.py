"""Results as tables and charts: on the console, and in docs/performance.md between markers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from bench import charts
from bench.model import Load
from bench.results import Results, Summary

BEGIN = "<!-- bench: begin. `make bench-publish` writes everything up to the end marker. -->"
END = "<!-- bench: end -->"
OURS = "ringfaust"
AGAINST = ("Artemis", "floor")
FIGURES = {
    "per_second": "messages/s",
    "worker_us": "broker or worker, µs of CPU a message",
    "client_us": "client, µs of CPU a message",
    "p50_ms": "latency p50, ms",
    "p99_ms": "latency p99, ms",
    "delivered_s": "last one delivered after, s",
    "in_order": "in order (1: yes)",
    "warm_s": "warm start, s",
    "cold_s": "cold start, s",
    "after_session_s": "serving after SIGKILL, s beyond the session",
}
"""The figures in the tables, and what they are called there."""


def rows(results: Results) -> Iterator[list[str]]:
    """A header, then a row for each figure of each load: every peer's, and our ratios."""
    peers = list(dict.fromkeys(line.peer for line in results.lines))
    against = [peer for peer in AGAINST if peer in peers]
    yield ["load", "figure", *peers, *(f"of {peer}" for peer in against)]
    for load in results.loads():
        ours = results.line(load, OURS)
        for name in ours.names() if ours else ():
            if not _tells(load, name):
                continue
            cells = [_cell(results, load, peer, name) for peer in peers]
            yield [
                load.title,
                FIGURES[name],
                *cells,
                *(_ratio(results, load, peer, name) for peer in against),
            ]


def _ratio(results: Results, load: Load, peer: str, name: str) -> str:
    ratios = list(results.ratios(load, peer, name))
    return f"{statistics.median(ratios):.2f}" if ratios else ""


def _tells(load: Load, figure: str) -> bool:
    """In all loads but two, messages wait in the queue or overtake each other by design."""
    if figure in ("p50_ms", "p99_ms"):
        return load.kind == "latency"
    if figure == "in_order":
        return load.kind == "scheduled"
    return figure in FIGURES


def _cell(results: Results, load: Load, peer: str, figure: str) -> str:
    line = results.line(load, peer)
    if line is None or figure not in line.names():
        return ""
    return _spread(line.summary(figure))


def _spread(summary: Summary) -> str:
    digits = 0 if summary.median >= 100 else 1
    median, least, most = (f"{value:,.{digits}f}" for value in summary)
    return median if least == most else f"{median} ({least}–{most})"


def console_table(results: Results) -> Table:
    """The table for a terminal."""
    header, *body = rows(results)
    table = Table(*header)
    for row in body:
        table.add_row(*row)
    return table


def publish(results: Results, docs: Path) -> None:
    """Write performance.json and the charts, and the table into performance.md."""
    results.write(docs / "performance.json")
    pictures = charts.draw(results, docs)
    page = docs / "performance.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + BEGIN + "\n\n" + _section(results, pictures) + "\n" + END + after)


def _section(results: Results, pictures: Sequence[Path]) -> str:
    where = results.environment
    lines = [
        f"Measured {where['at']} at {where['commit']} on {where['processor']}, {where['cores']} "
        f"cores, {where['memory_gib']} GiB, Python {where['python']}, Java {where['java']}, "
        f"{where['broker']}. Medians; the range of all rounds in parentheses.",
        "",
    ]
    header, *body = rows(results)
    lines.append("| " + " | ".join(header) + " |")
    lines.append("|" + "---|" * len(header))
    lines.extend("| " + " | ".join(row) + " |" for row in body)
    for picture in pictures:
        lines += ["", f"![{picture.stem.replace('-', ' ')}]({picture.name})"]
    return "\n".join(lines) + "\n"
