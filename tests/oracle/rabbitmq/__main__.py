"""`make oracle-rabbitmq`: random histories on a real RabbitMQ and on what an import makes of it.

Exit status 0 if all agree, 1 if one does not (its seed, its shortest form and both answers are
printed), 2 if RabbitMQ cannot be run here.
"""

from __future__ import annotations

import json
import sys

from tests.oracle.comparing import Difference, Tally, arguments, compare
from tests.oracle.rabbitmq.broker import Broker
from tests.oracle.rabbitmq.game import play
from tests.oracle.rabbitmq.histories import history
from tests.oracle.rabbitmq.packages import NoRabbitMQ
from tests.shortest import shortest


def main() -> int:
    asked = arguments("tests.oracle.rabbitmq", __doc__).parse_args()

    def played(seed: int, tally: Tally) -> Difference | None:
        return play(broker, seed, asked.operations, tally)

    def report(seed: int, difference: Difference) -> None:
        _report(broker, seed, asked.operations, difference)

    try:
        with Broker() as broker:
            return compare(f"RabbitMQ {broker.version}", asked, played, report)
    except NoRabbitMQ as error:
        print(error, file=sys.stderr)
        return 2


def _report(broker: Broker, seed: int, length: int, first: Difference) -> None:
    found = [first]

    def fails(fewer: tuple[int, ...]) -> bool:
        difference = play(broker, seed, length, kept=frozenset(fewer))
        if difference is not None:
            found.append(difference)
        return difference is not None

    kept = shortest(tuple(range(first.step)), fails)
    given = history(seed, length)
    print(f"seed {seed}: the sides differ; the shortest history that shows it:")
    for section in ("queues", "exchanges", "bindings", "policies", "parameters"):
        for entry in given.definitions[section]:
            print(f"  {section}: {json.dumps(entry)}")
    for number in kept:
        print(f"  {given.operations[number]}")
    print(found[-1])
    print(f"again: make oracle-rabbitmq RUNS=1 SEED={seed}")


if __name__ == "__main__":
    sys.exit(main())
