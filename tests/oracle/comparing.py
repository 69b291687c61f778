"""What the comparisons with other brokers have in common: arguments, run, and what differs."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from tests.oracle.clock import Late

Tally = Counter[str]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Difference:
    """Where the two sides part."""

    step: int
    """Number of the operation, from 1."""
    operation: object
    beside: str
    """Name of the other broker."""
    what: str
    """Field of what is seen."""
    theirs: object
    ours: object

    def __str__(self) -> str:
        return (
            f"after operation {self.step} ({self.operation}) differs: {self.what}\n"
            f"  {self.beside}: {self.theirs}\n"
            f"  ringfaust: {self.ours}"
        )


def in_time(unit_ms: int, slowest_ms: int, play: Callable[[int], _Result]) -> _Result:
    """Play with a unit of time, and with ever longer ones while this machine is too slow for it.

    Raises:
        Late: it is too slow even for the slowest.
    """
    while True:
        try:
            return play(unit_ms)
        except Late:
            unit_ms *= 2
            if unit_ms > slowest_ms:
                raise


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
    play: Callable[[int, Tally], Difference | None],
    report: Callable[[int, Difference], None],
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
