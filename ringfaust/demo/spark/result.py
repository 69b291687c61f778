"""The final screen of the demo: what both evicted, by queue."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ringfaust.demo.dashboard import Dashboard
from ringfaust.demo.spark.compare import QueueComparison


def print_result(
    dashboard: Dashboard, found: list[QueueComparison], *, balanced: bool, report: Path
) -> bool:
    """Print the final screen, and return whether everything is equal and balances.

    Args:
        dashboard: where to print.
        found: what both evicted.
        balanced: whether the audit found that the worker's accounts balance.
        report: the folder of the audit's report.
    """
    console = dashboard.console
    console.print(_table(found))
    different = [row for row in found if row.difference]
    for row in different:
        console.print(f"  {row.queue}: {row.difference}", markup=False, highlight=False)
    is_equal = balanced and not different
    if is_equal:
        verdict = "[bold green]everything equal and accounted for[/]"
    elif balanced:
        verdict = f"[bold red]{len(different)} of {len(found)} queues differ[/]"
    else:
        verdict = "[bold red]the worker's accounts do not balance; see the audit above[/]"
    console.print(f"{verdict}, in {dashboard.seconds():.0f} s", highlight=False)
    page = report / "report.html"
    console.print(f"the audit's report: {page}", markup=False, highlight=False, soft_wrap=True)
    return is_equal


def _table(found: list[QueueComparison]) -> Table:
    title = "what worker and job evicted of the same flights: key, value, headers and order"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", show_footer=True)
    rows = sorted(found, key=lambda row: -row.flights)
    table.add_column("queue", "all", no_wrap=True)
    for name, field in (
        ("flights", "flights"),
        ("evicted by the worker", "by_worker"),
        ("evicted by the job", "by_job"),
    ):
        total = sum(getattr(row, field) for row in rows)
        table.add_column(name, f"{total:,}", justify="right")
    table.add_column("equal", _yes_or_no(not any(row.difference for row in rows)))
    for row in rows:
        counts = (row.flights, row.by_worker, row.by_job)
        table.add_row(
            row.queue, *(f"{count:,}" for count in counts), _yes_or_no(not row.difference)
        )
    return table


def _yes_or_no(equal: bool) -> str:
    return "[green]yes[/]" if equal else "[bold red]NO[/]"
