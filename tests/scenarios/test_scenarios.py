"""Each scenario file on each host, and the reports about wrong files."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from click.testing import Result
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.cli.scenario import run
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.scenario.faust import FaustHarness
from ringfaust.testing.scenario.harness import PARALLEL_FILES
from ringfaust.testing.scenario.memory import MemoryScenarioHost
from ringfaust.testing.scenario.player import Difference, play
from ringfaust.testing.scenario.reading import load
from ringfaust.testing.scenario.runner import PlayedScenario, play_all

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.yaml"))
RINGFAUST = Path(sys.executable).with_name("ringfaust")

by_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@by_file
def test_a_scenario_holds_on_memory(path: Path) -> None:
    assert not load(path).needs()
    play(load(path), MemoryScenarioHost())


@by_file
def test_a_scenario_holds_wherever_its_commands_are_cut(path: Path) -> None:
    """R114: a transaction for each message that a command touches."""
    play(load(path), MemoryScenarioHost(step_transitions=1))


# --- on a real worker and broker ----------------------------------------------------------------


@pytest.fixture(scope="session")
def stage(broker: EmbeddedBroker) -> Iterator[FaustHarness]:
    stage = FaustHarness(broker.bootstrap_servers)
    yield stage
    stage.close()


WITH_CRASH = [path for path in FILES if load(path).crashes()]


@pytest.mark.kafka
@pytest.mark.parametrize(
    "path", [path for path in FILES if path not in WITH_CRASH], ids=lambda path: path.stem
)
def test_a_scenario_holds_on_faust(path: Path, stage: FaustHarness) -> None:
    play(load(path), stage.host())


def failed(paths: Sequence[Path], stage: FaustHarness) -> list[PlayedScenario]:
    """Play files side by side; returns those that do not hold."""
    return [each for each in play_all(list(map(load, paths)), stage) if each.verdict != "holds"]


@pytest.mark.kafka
def test_scenarios_with_a_crash_hold_on_faust(broker: EmbeddedBroker) -> None:
    """Side by side, so that they share the restarts of the worker."""
    stage = FaustHarness(broker.bootstrap_servers, parallel_files=PARALLEL_FILES)
    try:
        assert failed(WITH_CRASH, stage) == []
    finally:
        stage.close()


def topics_of(broker: EmbeddedBroker) -> set[str]:
    async def ask() -> set[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            # Kafka makes its own (`__consumer_offsets` …) when it first needs them, and keeps them.
            return {name for name in await admin.list_topics() if not name.startswith("__")}
        finally:
            await admin.close()

    return asyncio.run(ask())


@pytest.mark.kafka
def test_scenarios_hold_if_a_crash_also_loses_the_disk(broker: EmbeddedBroker) -> None:
    before = topics_of(broker)
    stage = FaustHarness(broker.bootstrap_servers, lose_state=True, parallel_files=3)
    try:
        names = ("crash", "accounts", "settled-by-name")
        assert failed([HERE / f"{name}.yaml" for name in names], stage) == []
        assert topics_of(broker) > before
    finally:
        stage.close()
    assert topics_of(broker) == before, "topics were left on the user's broker"


@pytest.mark.kafka
def test_an_unexpected_output_is_found(broker: EmbeddedBroker, stage: FaustHarness) -> None:
    scenario = load(HERE / "ring-overflow.yaml")
    host = stage.host()
    topic = host._partition.control_topic.replace("control", "evicted")

    async def twice() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"again", headers=[("ringfaust-id", b"A")])

    asyncio.run(twice())
    with pytest.raises(Difference) as found:
        play(scenario, host)
    assert "evicted" in found.value.what
    play(scenario, stage.host())


@pytest.mark.kafka
def test_the_command_starts_a_broker_for_faust() -> None:
    """It starts a broker of its own."""
    done = command("--host", "faust", "--strict", HERE / "ring-of-one.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "holds    ring-of-one: A ring of one keeps only the newest value.",
        "1 hold, 0 fail, 0 skipped (faust)",
    ]


# --- wrong files are reported ---------------------------------------------------------------------

FILE = """\
id: changed
says: A fourth message into a ring of three evicts the first.
rules: [R2]
queues:
  orders: {ring_size: 3, max_attempts: 1}
steps:
  - send: {queue: orders, ids: [A, B, C, D]}
    expect: {evicted: [{id: A, reason: overflow}]}
  - attach: {consumer: c1, queue: orders, credit: 2}
    expect: {dispatched: {c1: [B, C]}, redelivered: []}
  - ack: {consumer: c1, ids: [B]}
    expect: {acked: [B], dispatched: {c1: [D]}}
  - ack: {consumer: c1, ids: [B]}
    expect: {refused: [{reason: stale_delivery}]}
  - detach: {consumer: c1}
    expect: {returned: [D, C]}
  - state: {queue: orders, ready: [C, D], delivering: {}, scheduled: [], counts: {acked: 1}}
  - send: {queue: orders, ids: [E], ttl_ms: 5}
  - advance: 5
    expect: {expired: [E]}
  - attach: {consumer: c2, queue: orders, credit: 1}
  - release: {consumer: c2, ids: [C]}
    expect: {dead: [{id: C, reason: undeliverable}], dispatched: {c2: [D]}}
"""
WRONG = [
    # what is changed, into what; the step, what was expected, what happened
    ("id: A, reason: overflow", "id: B", "line 7, send: evicted", "['B: *']", "['A: overflow']"),
    ("reason: overflow", "reason: shrink", "line 7, send: evicted", "A: shrink", "A: overflow"),
    ("    expect: {evicted: [{id: A, reason: overflow}]}\n", "", "line 7, send: evicted",
     "[]", "['A: overflow']"),
    ("overflow}]}", "overflow}, B]}", "line 7, send: evicted", "'B: *'", "['A: overflow']"),
    ("{c1: [B, C]}", "{c1: [C, B]}", "line 9, attach: dispatched", "['C', 'B']", "['B', 'C']"),
    ("{c1: [B, C]}", "{}", "line 9, attach: dispatched", "{}", "{'c1': ['B', 'C']}"),
    ("{c1: [B, C]}", "{c2: [B, C]}", "line 9, attach: dispatched", "c2", "c1"),
    ("redelivered: []", "redelivered: [B]", "line 9, attach: redelivered", "['B']", "[]"),
    ("acked: [B]", "acked: []", "line 11, ack: acked", "[]", "['B']"),
    ("stale_delivery", "evicted", "line 13, ack: refused", "*: evicted", "B: stale_delivery"),
    ("expect: {refused: [{reason: stale_delivery}]}", "expect: {}", "line 13, ack: refused",
     "[]", "B: stale_delivery"),
    ("returned: [D, C]", "returned: [C, D]", "line 15, detach: returned", "['C'", "['D'"),
    ("returned: [D, C]", "dead: [C]", "line 15, detach: dead", "['C: *']", "[]"),
    ("ready: [C, D]", "ready: [C]", "line 17, state: ready", "['C']", "['C', 'D']"),
    ("delivering: {}", "delivering: {c1: [C]}", "line 17, state: delivering", "{'c1'", "{}"),
    ("scheduled: []", "scheduled: [E]", "line 17, state: scheduled", "['E']", "[]"),
    ("acked: 1}", "acked: 2}", "line 17, state: counts.acked", "2", "1"),
    ("expired: [E]", "expired: []", "line 19, advance: expired", "[]", "['E']"),
    ("advance: 5\n", "advance: 4\n", "line 19, advance: expired", "['E']", "[]"),
    ("undeliverable", "rejected", "line 22, release: dead", "C: rejected", "C: undeliverable"),
]  # fmt: skip


def changed(folder: Path, old: str, new: str) -> Path:
    path = folder / "changed.yaml"
    text = FILE.replace(old, new, 1)
    assert text != FILE or old == new
    path.write_text(text)
    return path


def test_the_unchanged_file_holds(tmp_path: Path) -> None:
    assert run([changed(tmp_path, "", "")], "memory", strict=True) == 0


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case[2]} {case[1].strip()}")
def test_a_wrong_expectation_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: tuple[str, ...]
) -> None:
    old, new, step, expected, happened = case
    assert run([changed(tmp_path, old, new)], "memory", strict=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fails    changed: A fourth message")
    assert lines[1].strip() == step
    assert lines[2].strip().startswith("expected ") and expected in lines[2]
    assert lines[3].strip().startswith("happened ") and happened in lines[3]
    assert lines[4] == "0 hold, 1 fail, 0 skipped (memory)"


@pytest.mark.kafka
@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case[2]} {case[1].strip()}")
def test_a_wrong_expectation_fails_on_faust(
    tmp_path: Path, stage: FaustHarness, case: tuple[str, ...]
) -> None:
    old, new, step, _, _ = case
    with pytest.raises(Difference) as found:
        play(load(changed(tmp_path, old, new)), stage.host())
    assert step == f"line {found.value.line}, {found.value.step}: {found.value.what}"


BAD: list[tuple[str, Callable[[str], str], str]] = [
    ("not YAML", lambda text: text.replace("[R2]", "[R2"), "4: not YAML: expected ',' or ']'"),
    ("no map", lambda _: "[]", "1: a scenario is a map with a list of steps"),
    ("empty", lambda _: "", "1: a scenario is a map with a list of steps"),
    ("other name", lambda text: text.replace("id: changed", "id: other"),
     "1: the id is 'other'; it must be the file's name"),
    ("unknown field", lambda text: text.replace("says:", "sais:"),
     "2: sais: unknown; did you mean 'says'?"),
    ("no says", lambda text: text.replace("says: A", "# A"), "1: says: Field required"),
    ("rule", lambda text: text.replace("[R2]", "[2]"), "3: rules: Input should be a valid string"),
    ("two kinds", lambda text: text.replace("advance: 5", "advance: 5\n    crash: {}"),
     "19: a step has one key besides expect, not ['advance', 'crash']"),
    ("no kind", lambda text: text.replace("- advance: 5\n    expect", "- expect"),
     "19: a step has one key besides expect, not []"),
    ("unknown step", lambda text: text.replace("advance: 5", "wait: 5"), "19: unknown step 'wait'"),
    ("text for ms", lambda text: text.replace("advance: 5", "advance: five"),
     "19: advance takes whole milliseconds, 0 or more, not 'five'"),
    ("back in time", lambda text: text.replace("advance: 5", "advance: -5"), "19: advance takes"),
    ("unknown argument", lambda text: text.replace("ttl_ms", "tll_ms"),
     "18: send.tll_ms: unknown; did you mean 'ttl_ms'?"),
    ("renamed argument", lambda text: text + "  - remove: {queue: orders, message: B}\n",
     "24: remove.message: unknown; known: queue, id"),
    ("missing argument", lambda text: text.replace(", credit: 2", ""), "9: attach.credit: Field"),
    ("priority", lambda text: text.replace("ttl_ms: 5", "priority: 10"), "18: send.priority"),
    ("no target", lambda text: text.replace("send: {queue: orders, ids: [E]", "send: {ids: [E]"),
     "18: send: a send names either a queue or an address"),
    ("unknown effect", lambda text: text.replace("expired:", "expird:"),
     "20: expect.expird: unknown; did you mean 'expired'?"),
    ("unknown part of one", lambda text: text.replace("reason: overflow", "raison: overflow"),
     "8: expect.evicted.raison: unknown; did you mean 'reason'?"),
    ("effect of a state", lambda text: text.replace("acked: 1}}", "acked: 1}}\n    expect: {}"),
     "18: a state has no effects to expect"),
    ("state of another queue", lambda text: text.replace("state: {queue: ord", "state: {queue: od"),
     "17: nothing before this uses the queue 'oders'; did you mean 'orders'?"),
    ("no number", lambda text: text.replace("{acked: 1}", "{acked: true}"),
     "17: state.counts.acked: Input should be a valid integer, not True"),
    ("unknown count", lambda text: text.replace("{acked: 1}", "{aked: 1}"),
     "17: state.counts.aked: no count 'aked'; there are acked"),
    ("key twice", lambda text: text.replace("    expect: {expired: [E]}",
     "    expect: {expired: [E]}\n    expect: {expired: [E]}"),
     "21: 'expect' is repeated (first in line 20)"),
    ("bad setting", lambda text: text.replace("ring_size: 3", "ring_size: 0"),
     "5: ring_size = 0: must be 1 or more, or -1 for no limit"),
    ("begin without name", lambda text: text + "  - begin: {}\n",
     "24: begin: a transaction is named by either session or xid"),
    ("sent and settled", lambda text: text + "  - begin: {session: s}\n"
     "  - send: {queue: orders, ids: [F], session: s}\n"
     "  - ack: {consumer: c2, ids: [D], session: s}\n",
     "26: session s both sends to orders and settles on it"),
    ("detach before commit", lambda text: text + "  - begin: {session: s}\n"
     "  - ack: {consumer: c2, ids: [D], session: s}\n  - detach: {consumer: c2}\n",
     "26: c2 has an ack pending in a session: it cannot detach"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"), [each[1:] for each in BAD], ids=[each[0] for each in BAD]
)
def test_an_invalid_file_is_reported_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[str], str], reason: str
) -> None:
    path = tmp_path / "changed.yaml"
    path.write_text(change(FILE))
    assert run([HERE / "ring-off.yaml", path], "memory", strict=False) == 2
    said = capsys.readouterr()
    assert said.out == "", "nothing is played when a file is not valid"
    assert said.err.startswith(f"{path}:") and reason in said.err


# --- the command --------------------------------------------------------------------------------


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RINGFAUST, "scenario", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def of_a_later_version(folder: Path) -> Path:
    return changed(folder, "max_attempts: 1}", "max_attempts: 1, colour: red}")


def test_the_command_prints_a_line_for_each_file(tmp_path: Path) -> None:
    done = command(HERE / "ring-of-one.yaml", of_a_later_version(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "holds    ring-of-one: A ring of one keeps only the newest value.",
        "skipped  changed: this host has no queue settings: colour",
        "1 hold, 0 fail, 1 skipped (memory)",
    ]


def in_process(*arguments: object) -> Result:
    """As `command`, without the start of a process."""
    return CliRunner().invoke(main, ["scenario", *map(str, arguments)])


def test_a_skipped_file_fails_a_strict_run(tmp_path: Path) -> None:
    done = in_process(HERE / "ring-of-one.yaml", of_a_later_version(tmp_path), "--strict")
    assert done.exit_code == 1
    assert "skipped  changed" in done.stdout
    assert in_process("--strict", *FILES[:3]).exit_code == 0


def test_the_exit_status_says_what_went_wrong(tmp_path: Path) -> None:
    wrong = changed(tmp_path, "ready: [C, D]", "ready: [D, C]")
    assert in_process(wrong).exit_code == 1
    wrong.write_text("id: changed")
    done = in_process(wrong)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"{wrong}:1: a scenario is a map with a list of steps\n"
    done = in_process(tmp_path / "nowhere.yaml")
    assert (done.exit_code, "No such file" in done.stderr) == (2, True)
