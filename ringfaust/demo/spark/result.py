"""The last screen: what both evicted, queue by queue."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ringfaust.demo.dashboard import Dashboard
from ringfaust.demo.spark.compare import Comparison


def print_result(dashboard: Dashboard, found: Comparison, *, balanced: bool, report: Path) -> bool:
    """Print it. Returns whether all is equal and balances.

    Args:
        dashboard: where to print.
        found: what both evicted.
        balanced: what the audit says of the worker's run.
        report: folder of the audit's report.
    """
    console = dashboard.console
    console.print(_table(found))
    if found.repeats:
        console.print(
            f"The job wrote {found.repeats:,} records twice, word for word, as Spark's Kafka sink "
            "may; they count once.",
            highlight=False,
        )
    different = [row for row in found.rows if row.difference]
    for row in different:
        console.print(f"  {row.queue}: {row.difference}", markup=False, highlight=False)
    right = balanced and not different
    if right:
        said = "[bold green]everything equal and accounted for[/]"
    elif balanced:
        said = f"[bold red]{len(different)} of {len(found.rows)} queues are not equal[/]"
    else:
        said = "[bold red]the worker's accounts do not balance, see the audit above[/]"
    console.print(f"{said}, in {dashboard.seconds():.0f} s", highlight=False)
    page = report / "report.html"
    console.print(f"the audit's report: {page}", markup=False, highlight=False, soft_wrap=True)
    return right


def _table(found: Comparison) -> Table:
    title = "what worker and job evicted of the same flights: key, value, headers and order"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", show_footer=True)
    rows = sorted(found.rows, key=lambda row: -row.flights)
    table.add_column("queue", "all", no_wrap=True)
    for name, field in (
        ("flights", "flights"),
        ("evicted by the worker", "by_worker"),
        ("evicted by the job", "by_job"),
    ):
        total = sum(getattr(row, field) for row in rows)
        table.add_column(name, f"{total:,}", justify="right")
    table.add_column("equal", _said(not any(row.difference for row in rows)))
    for row in rows:
        counts = (row.flights, row.by_worker, row.by_job)
        table.add_row(row.queue, *(f"{count:,}" for count in counts), _said(not row.difference))
    return table


def _said(equal: bool) -> str:
    return "[green]yes[/]" if equal else "[bold red]NO[/]"
