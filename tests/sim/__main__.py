"""`make sim SEEDS=2000`: the Faust host under crashes, on a Kafka that is a value.

Each seed is a history: sends, settles, commands, crashes, rebalances, repeats, clock jumps. The
host's own files do it; an independent bookkeeper reads the topics and holds them against the
contract; the same without any crash must leave the same bytes. Exit status 1 if a seed fails: it is
printed with the shortest history that does, to be pasted into `tests/sim/test_sim.py`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import track

from tests.sim.run import fault, history, shrink


def main() -> int:
    logging.getLogger("ringfaust.worker").setLevel(logging.CRITICAL)  # failed commits are expected
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    began, steps = time.process_time(), 0
    told: Counter[str] = Counter()
    for seed in track(seeds, "simulating", console=Console(stderr=True)):
        given = history(seed)
        steps += len(given.steps)
        if wrong := fault(given, told):
            print(f"seed {seed}: {wrong}", flush=True)
            shortest = shrink(given, fault)
            print(f"{len(shortest.steps)} steps fail as well: {fault(shortest)}\n{shortest}")
            print(f"again: make sim SEEDS=1 FIRST={seed}")
            return 1
    rate = steps / (time.process_time() - began)
    print(
        f"{asked.seeds} seeds, {steps:,} steps ({rate:,.0f} a second of one core): all books agree"
    )
    print("told:", ", ".join(f"{count:,} {event}" for event, count in sorted(told.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
