"""Print a verdict as a short table, or as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringfaust.core.model import HELD_STATES
from ringfaust.spark.audit.accounts import COUNTS
from ringfaust.spark.audit.findings import KINDS, severity
from ringfaust.spark.audit.verdict import Verdict

_MAX_QUEUES = 20
_MAX_FINDINGS = 20
_QUEUE_WIDTH = 10
"""Longer names are folded if the table does not fit."""
_SUMS = {
    "added": ("added",),
    "acked": ("acked",),
    "evicted": ("evicted",),
    "other exits": ("expired", "dead", "removed", "moved_out", "lost"),
    "held": HELD_STATES,
}
"""The columns of a narrow table, with the counts that each adds up."""


def headline(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    if verdict.balanced:
        return (
            f"{verdict.inputs - verdict.waiting:,} messages accounted for: "
            "0 missing, 0 doubled, 0 altered."
        )
    found = [f"{count:,} {KINDS[kind]}" for kind, count in verdict.kinds.items()]
    if verdict.unbalanced:
        found.append(f"{verdict.unbalanced:,} of {verdict.totals['queues']:,} queues unbalanced")
    return f"The accounts do not balance: {', '.join(found)}."


def remarks(verdict: Verdict) -> list[str]:
    """Things that are no fault, but worth knowing."""
    found = []
    if verdict.waiting:
        found.append(f"{verdict.waiting:,} records in the producers' topics have not been read.")
    if verdict.gaps:
        named = ", ".join(verdict.gaps[:_MAX_FINDINGS])
        more = ", \u2026" if len(verdict.gaps) > _MAX_FINDINGS else ""
        found.append(
            f"{len(verdict.gaps):,} gaps: these offsets were gone before a worker could process "
            f"them: {named}{more}."
        )
    if verdict.not_compared:
        named = ", ".join(f"{topic} {count:,}" for topic, count in verdict.not_compared.items())
        found.append(
            f"{sum(verdict.not_compared.values()):,} records were not compared, as they are gone "
            f"or no route names their topic any more: {named}."
        )
    if verdict.repeats:
        found.append(f"{verdict.repeats:,} records are exact copies of earlier ones.")
    return found


def top_queues(verdict: Verdict, most: int = _MAX_QUEUES) -> list[dict[str, Any]]:
    """Rows of queues: unbalanced ones first, then by evictions; the rest is summed in one row."""
    order = [F.col("balanced"), F.desc("evicted"), F.desc("added"), F.col("queue")]
    rows = [row.asDict() for row in verdict.queues.orderBy(*order).limit(most).collect()]
    left = verdict.totals["queues"] - len(rows)
    if left:
        rest = {name: verdict.totals[name] - sum(row[name] for row in rows) for name in COUNTS}
        others = verdict.unbalanced - sum(not row["balanced"] for row in rows)
        rows.append({"queue": f"{left:,} more", **rest, "balanced": not others, "faults": others})
    return rows


def print_verdict(console: Console, verdict: Verdict, seconds: float) -> None:
    """Print the table of queues, the verdict and the first findings."""
    console.print(_table(verdict, console.width))
    style = "bold green" if verdict.balanced else "bold red"
    console.print(headline(verdict), style=style, highlight=False)
    for text in remarks(verdict):
        console.print(text, highlight=False)
    console.print(
        f"{verdict.lines:,} events and {verdict.records:,} records compared in {seconds:.0f} s.",
        highlight=False,
    )
    print_findings(console, verdict)


def print_findings(console: Console, verdict: Verdict) -> None:
    """Print the first findings."""
    if not verdict.kinds:
        return
    for found in by_severity(verdict).limit(_MAX_FINDINGS).collect():
        console.print(f"  {describe(found.asDict())}", markup=False, highlight=False)
    left = sum(verdict.kinds.values()) - _MAX_FINDINGS
    if left > 0:
        console.print(f"  \u2026 and {left:,} more; --json lists all of them")


def _table(verdict: Verdict, width: int) -> Table:
    """The queues. Counts that are 0 everywhere are left out; those that do not fit are added up."""
    rows = top_queues(verdict)
    if verdict.totals["queues"] > 1:
        rows.append({"queue": "all", **verdict.totals, "balanced": not verdict.unbalanced})
    each = {name.replace("_", " "): (name,) for name in COUNTS}
    counts = _counts(rows, each, verdict)
    if _width(counts) > width:
        counts = _counts(rows, _SUMS, verdict)
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("queue", overflow="fold", min_width=_QUEUE_WIDTH)
    for heading in counts:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("balanced")
    for row, *texts in zip(rows, *counts.values(), strict=True):
        table.add_row(
            escape(row["queue"]), *texts, "[green]yes[/]" if row["balanced"] else "[bold red]NO[/]"
        )
    return table


def _counts(
    rows: list[dict[str, Any]], columns: Mapping[str, tuple[str, ...]], verdict: Verdict
) -> dict[str, list[str]]:
    """The texts of each column that is not 0 everywhere."""
    return {
        heading: [f"{sum(row[name] for name in names):,}" for row in rows]
        for heading, names in columns.items()
        if heading == "added" or any(verdict.totals[name] for name in names)
    }


def _width(counts: dict[str, list[str]]) -> int:
    widths = [max(map(len, (heading, *texts))) for heading, texts in counts.items()]
    return sum(width + 2 for width in (_QUEUE_WIDTH, *widths)) + len("balanced")


def describe(finding: dict[str, Any]) -> str:
    """One finding as a line of text."""
    where = []
    if finding["queue"] is not None and finding["sequence"] is not None:
        where.append(f"message {finding['sequence']} of {finding['queue']}")
    if finding["id"] and finding["id"] != finding["source"]:
        where.append(f"id {finding['id']}")
    if finding["source"]:
        where.append(f"source {finding['source']}")
    if finding["record"]:
        where.append(f"see {finding['record']}")
    return f"{KINDS[finding['kind']]}: {', '.join(where)}: {finding['text']}"


def json_lines(verdict: Verdict, seconds: float) -> Iterator[str]:
    """One JSON object per line, each with `type`: verdict, queues, windows, findings."""
    yield _line(
        "verdict",
        balanced=verdict.balanced, seconds=round(seconds, 1), inputs=verdict.inputs,
        waiting=verdict.waiting, events=verdict.lines, records=verdict.records,
        repeats=verdict.repeats, gaps=verdict.gaps, not_compared=verdict.not_compared,
        findings=verdict.kinds,
        unbalanced_queues=verdict.unbalanced, unbalanced_windows=verdict.unbalanced_windows,
        **verdict.totals,
    )  # fmt: skip
    for row in verdict.queues.orderBy("queue").toLocalIterator():
        yield _line("queue", **row.asDict())
    yield from _details(verdict)


def _details(verdict: Verdict) -> Iterator[str]:
    """One JSON object per queue and window, if windows were counted, and per finding."""
    if verdict.windows is not None:
        start = F.date_format("start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
        windows = verdict.windows.withColumn("start", start).orderBy("queue", "start")
        for row in windows.toLocalIterator():
            yield _line("window", **row.asDict())
    for row in by_severity(verdict).toLocalIterator():
        yield _line("finding", **row.asDict())


DAY_HEADING = f"{'day':10}{'messages':>14}{'events':>14}{'records':>14}{'faults':>9}{'s':>6}"
"""The names of the columns of `day_row`."""


def day_row(day: date, verdict: Verdict, seconds: float) -> str:
    """The verdict of a closed day as one row of a table."""
    faults = sum(verdict.kinds.values()) or verdict.unbalanced + verdict.unbalanced_windows
    counts = f"{verdict.inputs - verdict.waiting:14,}{verdict.lines:14,}{verdict.records:14,}"
    return f"{day}{counts}{faults:9,}{seconds:6.0f}"


def day_lines(day: date, verdict: Verdict, seconds: float) -> Iterator[str]:
    """One JSON object per line: the verdict of a closed day, windows, findings."""
    yield _line(
        "day",
        day=str(day), balanced=verdict.balanced, seconds=round(seconds, 1),
        inputs=verdict.inputs - verdict.waiting, events=verdict.lines, records=verdict.records,
        not_compared=verdict.not_compared, findings=verdict.kinds,
    )  # fmt: skip
    yield from _details(verdict)


def by_severity(verdict: Verdict) -> DataFrame:
    """The findings, the most severe first."""
    return verdict.findings.orderBy(severity(), "queue", "sequence", "source")


def _line(type_: str, **fields: Any) -> str:
    return json.dumps({"type": type_, **fields}, separators=(",", ":"))
