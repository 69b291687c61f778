"""`make chaos`: rounds of load and disasters, with three brokers and up to three workers.

The exit status is 0 if, after each round, all accounts balance, a read_committed reader sees every
record once, events have no gap, and each RocksDB database equals its changelog. The directory of a
failed round is kept, and the history of all rounds in build/chaos.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.chaos.cluster import MAX_WORKERS, Cluster
from tests.chaos.disasters import DISASTERS, Disaster
from tests.chaos.rounds import run_round

DISASTERS_A_ROUND = 5
HISTORIES = Path("build/chaos")


class Round(NamedTuple):
    """What is drawn for a round."""

    seed: int
    workers: int
    disasters: Sequence[Disaster]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument(
        "--workers", type=int, choices=range(1, MAX_WORKERS + 1),
        help=f"in each round; by default one to {MAX_WORKERS} in turn",
    )  # fmt: skip
    parser.add_argument("--disaster", help="only disasters whose name contains this")
    asked = parser.parse_args()
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # brokers are down at times
    base = Path(tempfile.mkdtemp(prefix="ringfaust-chaos-"))
    HISTORIES.mkdir(parents=True, exist_ok=True)
    drawn: Counter[str] = Counter()
    failed = 0
    with Cluster() as cluster, (HISTORIES / f"{asked.seed}.txt").open("w") as history:

        def say(text: str) -> None:
            for file in (sys.stdout, history):
                print(text, file=file, flush=True)

        say(f"seed {asked.seed}")
        rounds = _rounds(asked.seed, asked.rounds, asked.workers, asked.disaster or "")
        for number, chosen in enumerate(rounds):
            drawn.update(disaster.__name__ for disaster in chosen.disasters)
            say(f"round {number + 1} (seed {chosen.seed}), {chosen.workers} workers")
            began = time.monotonic()
            folder = base / f"round-{number}"
            try:
                faults = asyncio.run(
                    run_round(
                        folder, cluster, chosen.disasters, say=say,
                        workers=chosen.workers, seed=chosen.seed,
                    )
                )  # fmt: skip
            except (AssertionError, TimeoutError) as error:
                faults = [str(error) or repr(error)]
            for fault in faults:
                say(f"  WRONG: {fault}")
            failed += bool(faults)
            verdict = f"logs in {folder}" if faults else "all accounts balance"
            say(f"  {verdict} ({time.monotonic() - began:.0f} s)")
        say("; ".join(f"{name} {times}" for name, times in drawn.most_common()))
        say(f"{asked.rounds - failed} of {asked.rounds} rounds without a fault, seed {asked.seed}")
    if not failed:
        shutil.rmtree(base)
    return 1 if failed else 0


def _rounds(seed: int, rounds: int, workers: int | None, name: str) -> Iterator[Round]:
    """Draw the rounds: each kind of disaster comes before one comes again."""
    known = [disaster for disaster in DISASTERS if name in disaster.__name__]
    deck: list[Disaster] = []
    for number in range(rounds):
        rng = random.Random(seed + number)
        if len(deck) < DISASTERS_A_ROUND:
            deck += rng.sample(known, len(known)) * -(-DISASTERS_A_ROUND // len(known))
        drawn, deck = deck[:DISASTERS_A_ROUND], deck[DISASTERS_A_ROUND:]
        yield Round(seed + number, workers or 1 + number % MAX_WORKERS, drawn)


if __name__ == "__main__":
    sys.exit(main())
