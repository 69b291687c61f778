"""`make oracle`: random histories on the real Artemis and on the engine; they must agree.

Exit status 0 if all do, 1 if one does not (its seed, its shortest form and both answers are
printed), 2 if Artemis cannot be run here.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter

from rich.console import Console
from rich.progress import track

from ringfaust.errors import RingfaustError
from tests.oracle.artemis import Artemis
from tests.oracle.clock import Late
from tests.oracle.game import Difference, Tally, play
from tests.oracle.operations import History, history
from tests.oracle.shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--operations", type=int, default=30)
    parser.add_argument(
        "--imported", action="store_true", help="configure both sides by a broker.xml"
    )
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a difference")
    asked = parser.parse_args()
    try:
        with Artemis() as artemis:
            return _run(artemis, asked)
    except RingfaustError as error:
        print(error, file=sys.stderr)
        return 2


def _run(artemis: Artemis, asked: argparse.Namespace) -> int:
    seeds = range(asked.seed, asked.seed + asked.runs)
    differ = 0
    tally: Tally = Counter()
    for seed in track(seeds, f"beside Artemis {artemis.version}", console=Console(stderr=True)):
        given = history(seed, asked.operations)
        try:
            difference = play(artemis, given, tally, imported=seed if asked.imported else None)
        except Late:
            print(f"seed {seed}: this machine is too busy for what takes time")
            differ += 1
            continue
        if difference is None:
            continue
        differ += 1
        _report(artemis, given, difference, seed, is_imported=asked.imported)
        if not asked.keep_going:
            more = " IMPORTED=1" if asked.imported else ""
            print(f"again: make oracle RUNS=1 SEED={seed}{more}")
            return 1
    result = ", ".join(f"{number:,} {kind}" for kind, number in tally.items())
    agree = f"{asked.runs - differ} of {asked.runs} histories agree, from seed {asked.seed}"
    print(f"{agree} ({result})")
    return 1 if differ else 0


def _report(
    artemis: Artemis, given: History, first: Difference, seed: int, *, is_imported: bool
) -> None:
    found = [first]

    def fails(fewer: History) -> bool:
        difference = play(artemis, fewer, imported=seed if is_imported else None)
        if difference is not None:
            found.append(difference)
        return difference is not None

    shortest = shrink(given, fails)
    print(f"seed {seed}: the sides differ; the shortest history that shows it:\n{shortest}")
    print(found[-1])
    if len(found) == 1:
        print("It did not show again: something is decided by a race.")


if __name__ == "__main__":
    sys.exit(main())
