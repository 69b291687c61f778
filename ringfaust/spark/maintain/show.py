"""Print what maintenance changed, as a table of at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

TableSize = tuple[int, int, int]
"""Of a table: how many files are part of it, their size, and the size of all in its folder."""


def print_summary(
    console: Console, sizes: Mapping[str, tuple[TableSize, TableSize]], unclosed: int
) -> None:
    """Print files, size and stored bytes of each table, before and after.

    `unclosed` is the number of records of bronze that stay until the audit has closed them.
    """
    shown = Table("table", box=None, pad_edge=False)
    for name in ("files", "after", "size", "after", "stored", "after"):
        shown.add_column(name, justify="right", no_wrap=True)
    for table, (before, after) in sizes.items():
        shown.add_row(
            table,
            f"{before[0]:,}", f"{after[0]:,}", decimal(before[1]), decimal(after[1]),
            decimal(before[2]), decimal(after[2]),
        )  # fmt: skip
    console.print(shown)
    freed = sum(before[2] - after[2] for before, after in sizes.values())
    if freed >= 0:
        console.print(f"{decimal(freed)} of storage freed.", highlight=False)
    else:
        console.print(
            f"{decimal(-freed)} more stored: vacuum deletes the files that were replaced once "
            "--deleted-file-retention has passed.",
            highlight=False,
        )
    if unclosed:
        console.print(
            f"bronze keeps older records that no closed day of the audit contains: {unclosed:,}. "
            "Close days with `ringfaust spark audit --lake`. Those that no worker has read, such "
            "as the last ones of a removed route, stay.",
            highlight=False,
        )
