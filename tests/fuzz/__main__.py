"""`make fuzz`: play random histories for a while, and measure each of their transactions.

Odd seeds measure time, even ones memory. Exit status 1 if one took more than `costs` allows: then
its seed is printed.
"""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.progress import Progress

from tests.fuzz.costs import faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    asked = parser.parse_args()
    began = time.monotonic()
    seed = asked.first
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("fuzzing", total=asked.minutes * 60)
        while (spent_s := time.monotonic() - began) < asked.minutes * 60:
            progress.update(bar, completed=spent_s, description=f"seed {seed}")
            for fault in faults(seed, traces=seed % 2 == 0):
                print(fault)
                return 1
            seed += 1
    print(f"seeds {asked.first} to {seed - 1}: no transaction took too much")
    return 0


if __name__ == "__main__":
    sys.exit(main())
