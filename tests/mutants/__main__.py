"""`make mutants`: each fault put into a copy of the engine must be found.

By scenarios (on the memory host), by the naive model, by the simulator, each with few examples, or
by the tests of what a worker checks at its start. Exit status 1 if a mutant survives all of them or
its snippet is no longer in the source, 2 if the hunters find fault with the source as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.mutants.hunt import hunt
from tests.mutants.mutants import MUTANTS, Mutant, Stale
from tests.mutants.trial import HUNTERS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose name matches this expression")
    parser.add_argument(
        "--first", action="store_true", help="stop at the first hunter that finds a mutant"
    )
    parser.add_argument("--details", action="store_true", help="print what was found")
    asked = parser.parse_args()
    if not asked.first and not _passes(tuple(HUNTERS)):
        return 2
    chosen = [mutant for mutant in MUTANTS if re.search(asked.only, mutant.name)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        trials = pool.map(partial(_try, first=asked.first), chosen)
        found = list(track(trials, "hunting", len(chosen), console=Console(stderr=True)))
    finders = [name for name in HUNTERS if any(by.get(name) for by in found)]
    if asked.first and not _passes(finders):
        return 2
    _show(list(zip(chosen, found, strict=True)), details=asked.details)
    survivors = [
        mutant.name for mutant, by in zip(chosen, found, strict=True) if not any(by.values())
    ]
    stale = [by["stale"] for by in found if "stale" in by]
    for text in (*stale, *(f"{name}: nobody has found it" for name in survivors)):
        print(text, file=sys.stderr)
    print(f"{len(chosen) - len(survivors) - len(stale)} of {len(chosen)} mutants are found")
    return 1 if survivors or stale else 0


def _passes(hunters: Sequence[str]) -> bool:
    """Whether these hunters find no fault with the source as it is; prints what they find."""
    failures = [*filter(None, hunt(None, hunters).values())]
    if failures:
        print("the source as it is does not pass:", *failures, sep="\n  ", file=sys.stderr)
    return not failures


def _try(mutant: Mutant, *, first: bool) -> dict[str, str]:
    try:
        is_pure = mutant.file.startswith(("core/", "protocol/", "processor/"))
        hunters = [name for name in HUNTERS if name != "units" or not is_pure]
        if first:  # the likeliest comes first
            likeliest = "engine" if is_pure else "units"
            hunters.sort(key=lambda name: name != likeliest)
        began_s = time.monotonic()
        found = hunt(mutant, hunters, first=first)
        by = ", ".join(name for name in hunters if found.get(name)) or "nobody"
        print(f"{mutant.name}: {by}, {time.monotonic() - began_s:.0f} s", flush=True)
        return found
    except Stale as error:
        return {"stale": str(error)}


def _show(results: list[tuple[Mutant, dict[str, str]]], *, details: bool) -> None:
    table = Table("mutant", "breaks", *HUNTERS, title="found by")
    for mutant, found in results:
        marks = [found.get(name, "") for name in HUNTERS]
        shown = marks if details else [mark.split(":")[0] for mark in marks]
        table.add_row(mutant.name, mutant.breaks, *shown)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    sys.exit(main())
