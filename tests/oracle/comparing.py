"""What the comparisons with other brokers have in common: their arguments, and their run."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from tests.oracle.clock import Late

Tally = Counter[str]
_Difference = TypeVar("_Difference")


def arguments(program: str, about: str | None) -> argparse.ArgumentParser:
    """What both commands take."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--operations", type=int, default=30)
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a difference")
    return parser


def compare(
    beside: str,
    asked: argparse.Namespace,
    play: Callable[[int, Tally], _Difference | None],
    report: Callable[[int, _Difference], None],
) -> int:
    """Play the histories that were asked for. Returns the exit status: 0 if all agree.

    Args:
        beside: name and version of the other broker.
        asked: see `arguments`.
        play: plays the history of a seed, and adds to a tally.
        report: prints a difference, and how to see it again.
    """
    seeds = range(asked.seed, asked.seed + asked.runs)
    differ = 0
    tally: Tally = Counter()
    for seed in track(seeds, f"beside {beside}", console=Console(stderr=True)):
        try:
            difference = play(seed, tally)
        except Late:
            print(f"seed {seed}: this machine is too busy for what takes time")
            differ += 1
            continue
        if difference is None:
            continue
        differ += 1
        report(seed, difference)
        if not asked.keep_going:
            return 1
    result = ", ".join(f"{number:,} {kind}" for kind, number in sorted(tally.items()))
    agree = f"{asked.runs - differ} of {asked.runs} histories agree, from seed {asked.seed}"
    print(f"{agree} ({result})")
    return 1 if differ else 0
