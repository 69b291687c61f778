"""`make oracle`: random histories on the real Artemis and on the engine; they must agree.

Exit status 0 if all do, 1 if one does not (its seed, its shortest form and both answers are
printed), 2 if Artemis cannot be run here.
"""

from __future__ import annotations

import sys

from ringfaust.errors import RingfaustError
from tests.oracle.artemis import Artemis
from tests.oracle.comparing import Difference, Tally, arguments, compare
from tests.oracle.game import play
from tests.oracle.operations import Operation, history
from tests.shortest import shortest


def main() -> int:
    parser = arguments("tests.oracle", __doc__)
    parser.add_argument(
        "--imported", action="store_true", help="configure both sides by a broker.xml"
    )
    asked = parser.parse_args()

    def played(seed: int, tally: Tally) -> Difference | None:
        given = history(seed, asked.operations)
        return play(artemis, given, tally, imported=seed if asked.imported else None)

    def report(seed: int, difference: Difference) -> None:
        _report(artemis, seed, asked.operations, difference, is_imported=asked.imported)

    try:
        with Artemis() as artemis:
            return compare(f"Artemis {artemis.version}", asked, played, report)
    except RingfaustError as error:
        print(error, file=sys.stderr)
        return 2


def _report(
    artemis: Artemis, seed: int, length: int, first: Difference, *, is_imported: bool
) -> None:
    given = history(seed, length)
    found = [first]

    def fails(fewer: tuple[Operation, ...]) -> bool:
        shorter = given._replace(operations=fewer)
        difference = play(artemis, shorter, imported=seed if is_imported else None)
        if difference is not None:
            found.append(difference)
        return difference is not None

    short = given._replace(operations=shortest(given.operations, fails))
    print(f"seed {seed}: the sides differ; the shortest history that shows it:\n{short}")
    print(found[-1])
    if len(found) == 1:
        print("It did not show again: something is decided by a race.")
    print(f"again: make oracle RUNS=1 SEED={seed}{' IMPORTED=1' if is_imported else ''}")


if __name__ == "__main__":
    sys.exit(main())
