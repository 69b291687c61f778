"""`make chaos`: rounds of load and disaster, with one worker and with two.

Exit status 0 if after each round all accounts balance, a read_committed reader sees nothing twice
and nothing missing, events have no gap, and each RocksDB is what its changelog says. The folder of
a round that failed is kept.
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
from pathlib import Path

from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.plots import ALONE, TOGETHER
from tests.chaos.rounds import play

PLOTS_A_ROUND = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--plot", help="only plots whose name has this in it")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # the broker is away at times
    base = Path(tempfile.mkdtemp(prefix="ringfaust-chaos-"))
    failed = 0
    with EmbeddedBroker() as broker:
        for number in range(asked.rounds):
            failed += not _round(base, broker, number, asked)
    print(f"{asked.rounds - failed} of {asked.rounds} rounds without fault, seed {asked.seed}")
    if not failed:
        shutil.rmtree(base)
    return 1 if failed else 0


def _round(base: Path, broker: EmbeddedBroker, number: int, asked: argparse.Namespace) -> bool:
    seed = asked.seed + number
    workers = 1 + number % 2
    rng = random.Random(seed)
    known = [
        plot
        for plot in (ALONE if workers == 1 else TOGETHER)
        if not asked.plot or asked.plot in plot.__name__
    ]
    plots = [*rng.sample(known, len(known)), *rng.choices(known, k=PLOTS_A_ROUND)]
    began = time.monotonic()
    print(f"round {number + 1} (seed {seed}), {workers} worker(s)", flush=True)
    folder = base / f"round-{number}"
    try:
        faults = asyncio.run(
            play(
                folder, broker, plots[:PLOTS_A_ROUND], workers=workers, seed=seed,
                say=lambda text: print(text, flush=True),
            )
        )  # fmt: skip
    except AssertionError as error:
        faults = [str(error)]
    for fault in faults:
        print(f"  WRONG: {fault}")
    verdict = f"logs in {folder}" if faults else "all accounts balance"
    print(f"  {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    return not faults


if __name__ == "__main__":
    sys.exit(main())
