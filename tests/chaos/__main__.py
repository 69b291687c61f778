"""`make chaos`: rounds of load and disasters, with one worker and with two.

The exit status is 0 if, after each round, all accounts balance, a read_committed reader sees every
record once, events have no gap, and each RocksDB database equals its changelog. The directory of a
failed round is kept.
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
from tests.chaos.disasters import FOR_ONE_WORKER, FOR_TWO_WORKERS
from tests.chaos.rounds import run_round

DISASTERS_A_ROUND = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--disaster", help="only disasters whose name contains this")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # the broker is down at times
    base = Path(tempfile.mkdtemp(prefix="ringfaust-chaos-"))
    failed = 0
    with EmbeddedBroker() as broker:
        for number in range(asked.rounds):
            failed += not _round(base, broker, number, asked)
    print(f"{asked.rounds - failed} of {asked.rounds} rounds without a fault, seed {asked.seed}")
    if not failed:
        shutil.rmtree(base)
    return 1 if failed else 0


def _round(base: Path, broker: EmbeddedBroker, number: int, asked: argparse.Namespace) -> bool:
    seed = asked.seed + number
    workers = 1 + number % 2
    rng = random.Random(seed)
    known = [
        disaster
        for disaster in (FOR_ONE_WORKER if workers == 1 else FOR_TWO_WORKERS)
        if not asked.disaster or asked.disaster in disaster.__name__
    ]
    disasters = [*rng.sample(known, len(known)), *rng.choices(known, k=DISASTERS_A_ROUND)]
    began = time.monotonic()
    print(f"round {number + 1} (seed {seed}), {workers} worker(s)", flush=True)
    folder = base / f"round-{number}"
    try:
        faults = asyncio.run(
            run_round(
                folder, broker, disasters[:DISASTERS_A_ROUND], workers=workers, seed=seed,
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
