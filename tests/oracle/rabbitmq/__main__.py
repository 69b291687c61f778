"""`make oracle-rabbitmq`: random histories on a real RabbitMQ and on what an import makes of it.

Exit status 0 if all agree, 1 if one does not (its seed, its shortest form and both answers are
printed), 2 if RabbitMQ cannot be run here.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter

from rich.console import Console
from rich.progress import track

from tests.oracle.rabbitmq.broker import Broker
from tests.oracle.rabbitmq.game import Difference, Late, Tally, play
from tests.oracle.rabbitmq.histories import history
from tests.oracle.rabbitmq.packages import NoRabbitMQ


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.rabbitmq", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--operations", type=int, default=30)
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a difference")
    asked = parser.parse_args()
    try:
        with Broker() as broker:
            return _run(broker, asked)
    except NoRabbitMQ as error:
        print(error, file=sys.stderr)
        return 2


def _run(broker: Broker, asked: argparse.Namespace) -> int:
    seeds = range(asked.seed, asked.seed + asked.runs)
    differ = 0
    tally: Tally = Counter()
    for seed in track(seeds, f"beside RabbitMQ {broker.version}", console=Console(stderr=True)):
        try:
            difference = play(broker, seed, asked.operations, tally)
        except Late:
            print(f"seed {seed}: this machine is too busy for what takes time")
            differ += 1
            continue
        if difference is None:
            continue
        differ += 1
        _report(broker, seed, asked.operations, difference)
        if not asked.keep_going:
            print(f"again: make oracle-rabbitmq RUNS=1 SEED={seed}")
            return 1
    result = ", ".join(f"{number:,} {kind}" for kind, number in sorted(tally.items()))
    agree = f"{asked.runs - differ} of {asked.runs} histories agree, from seed {asked.seed}"
    print(f"{agree} ({result})")
    return 1 if differ else 0


def _report(broker: Broker, seed: int, length: int, first: Difference) -> None:
    """Print the shortest history that shows a difference, found by leaving operations out."""
    kept, found = list(range(first.step)), first
    for number in reversed(range(first.step - 1)):
        fewer = [each for each in kept if each != number]
        if (difference := play(broker, seed, length, kept=frozenset(fewer))) is not None:
            kept, found = fewer, difference
    given = history(seed, length)
    print(f"seed {seed}: the sides differ; the shortest history that shows it:")
    for section in ("queues", "exchanges", "bindings", "policies", "parameters"):
        for entry in given.definitions[section]:
            print(f"  {section}: {json.dumps(entry)}")
    for number in kept:
        print(f"  {given.operations[number]}")
    print(found)


if __name__ == "__main__":
    sys.exit(main())
