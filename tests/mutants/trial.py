"""What is tried on one copy of the package, which has a mutant or none. Run inside the copy.

Prints a line for each hunter: its name, and what it found, or nothing.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from ringfaust.testing.scenario.grammar import Scenario
from ringfaust.testing.scenario.memory import MemoryScenarioHost
from ringfaust.testing.scenario.player import play
from ringfaust.testing.scenario.reading import load

FIRST = "--first"
SEEDS = 120
EXAMPLES = 60
UNITS = (
    "client/test_repeats",
    "kafka/test_vendor",
    "transactional/test_vendor",
    "worker/test_assignment",
    "worker/faust/test_assignor",
    "worker/faust/test_group",
    "worker/faust/test_membership",
    "worker/faust/test_shares",
    "worker/partition/test_gone_topics",
    "worker/partition/test_other_routes",
    "worker/partition/test_route_changes",
    "worker/store/test_store",
    "worker/store/test_store_identity",
    "worker/store/test_data_dir",
    "worker/test_failover",
    "worker/partition/test_task",
    "sim/test_routes",
    "sim/test_stops",
)


def scenarios() -> Iterator[tuple[str, Callable[[], object]]]:
    """Each file that the memory host plays."""
    for path in sorted(Path("tests/scenarios").glob("*.yaml")):
        scenario = load(path)
        if not scenario.needs():
            yield path.stem, partial(_play, scenario)


def _play(scenario: Scenario) -> None:
    play(scenario, MemoryScenarioHost())


def model() -> Iterator[tuple[str, Callable[[], object]]]:
    """The naive model beside the engine."""
    from tests.model.profile import PROFILE  # noqa: PLC0415
    from tests.model.test_model import RulesInBytes  # noqa: PLC0415

    few = settings(PROFILE, max_examples=EXAMPLES, phases=[Phase.generate], database=None)
    yield "rules", lambda: run_state_machine_as_test(seed(0)(RulesInBytes), settings=few)


def simulator() -> Iterator[tuple[str, Callable[[], object]]]:
    """Seeds of the simulator."""
    from tests.sim import run  # noqa: PLC0415

    for number in range(SEEDS):
        yield f"seed {number}", partial(run.play, *run.history(number))


def units() -> Iterator[tuple[str, Callable[[], object]]]:
    """Tests of what the others cannot see: what workers check, and the Kafka clients."""
    return _tests_of(UNITS)


def engine() -> Iterator[tuple[str, Callable[[], object]]]:
    """Tests of what the naive model meets too seldom or cannot judge, such as bounds."""
    return _tests_of(
        (
            "core/test_engine",
            "core/test_bounds",
            "fuzz/test_bytes",
            "fuzz/test_work",
            "fuzz/test_retained",
            "fuzz/test_applied",
            "fuzz/test_counted",
            "model/test_selecting",
        )
    )


def _tests_of(names: Sequence[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    for name in names:
        yield name, partial(_run_tests, f"tests/{name}.py")


def _run_tests(path: str) -> None:
    with redirect_stdout(io.StringIO()) as output:
        options = ["-q", "-x", "-p", "no:cacheprovider", "--noconftest", "-o", "asyncio_mode=auto"]
        options.append("--import-mode=importlib")  # two files have one name
        status = pytest.main([*options, path])
    lines = [line for line in output.getvalue().splitlines() if line.startswith(("FAILED", "ERR"))]
    assert status == 0, " ".join(lines)


HUNTERS = {hunter.__name__: hunter for hunter in (scenarios, model, simulator, engine, units)}


def _hunt(hunter: Callable[[], Iterator[tuple[str, Callable[[], object]]]]) -> str:
    """The first that finds something, and what; empty: none does."""
    name = "at once"
    try:
        for each, attempt in hunter():
            name = each
            attempt()
    except Exception as error:
        said = traceback.format_exception_only(error)[-1].strip().split("\n")[0]
        return f"{name}: {said[:300]}"
    return ""


def main() -> None:
    """Arguments: hunters in order; a test to run before; `FIRST`: stop at what finds something."""
    is_first, names = FIRST in sys.argv, [each for each in sys.argv[1:] if each in HUNTERS]
    likeliest = [each for each in sys.argv[1:] if each.startswith("tests/")]
    attempts = [(each, partial(_run_tests, each)) for each in likeliest]
    if found := _hunt(lambda: iter(attempts)):
        print(f"{names[0]}\t{found}", flush=True)
        return
    for name in names:
        found = _hunt(HUNTERS[name])
        print(f"{name}\t{found}", flush=True)
        if found and is_first:
            return


if __name__ == "__main__":
    main()
