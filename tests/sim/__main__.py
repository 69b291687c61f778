"""`make sim SEEDS=2000`: the worker's tasks under crashes, on a virtual Kafka.

Each seed is a history of sends, settles, commands, crashes, rebalances, standbys, repeats, clock
jumps, applied configurations, a raised level, workers of the version before, and stops with the
orders to them, run by the worker's own tasks. An independent bookkeeper reads the topics and checks
them against the contract, and a run without crashes must leave the same bytes. If a seed fails, the
exit status is 1, and the shortest history that fails is printed, to be pasted into
`tests/sim/test_sim.py`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import track

from tests.sim.run import failure, history, shrink


def main() -> int:
    logging.getLogger("ringfaust.worker").setLevel(logging.CRITICAL)  # failed commits are expected
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    began, steps = time.process_time(), 0
    events: Counter[str] = Counter()
    for seed in track(seeds, "simulating", console=Console(stderr=True)):
        given = history(seed)
        steps += len(given.steps)
        if wrong := failure(given, events):
            print(f"seed {seed}: {wrong}", flush=True)
            shortest = shrink(given, failure)
            print(f"{len(shortest.steps)} steps are enough: {failure(shortest)}\n{shortest}")
            print(f"again: make sim SEEDS=1 FIRST={seed}")
            return 1
    rate = steps / (time.process_time() - began)
    print(f"{asked.seeds} seeds, {steps:,} steps ({rate:,.0f} a second on one core): no faults")
    print("events:", ", ".join(f"{count:,} {event}" for event, count in sorted(events.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
