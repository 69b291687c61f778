"""The demo of the pipeline on Spark, as a user runs it but for the number of flights."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.demo.dashboard import Dashboard, DemoState
from ringfaust.demo.spark.commands import CommandFailed, CommandRunner
from ringfaust.demo.spark.compare import EvictedRecord, QueueComparison, difference
from ringfaust.demo.spark.result import print_result
from ringfaust.protocol import headers as h
from ringfaust.testing.broker import EmbeddedBroker

FLIGHTS = 2_000
RING_SIZE = 50


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ringfaust", "spark", "demo", *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.kafka
@pytest.mark.slow
def test_both_runs_are_equal_and_audited(broker: EmbeddedBroker, tmp_path: Path) -> None:
    tmp_path.joinpath("tmp").mkdir()
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    done = demo(tmp_path, "--flights", str(FLIGHTS), *servers)
    result = done.stdout
    assert done.returncode == 0, result + done.stderr
    commands = [line.partition("$ ringfaust ")[2] for line in result.splitlines() if "$ " in line]
    words = [" ".join(command.split()[:2]) for command in commands]
    assert words == [
        "topics create", "topics create", "worker --config", "spark lake", "spark audit",
        "spark ring",
    ]  # fmt: skip
    assert f"{FLIGHTS:,} messages accounted for: 0 missing, 0 doubled, 0 altered." in result
    _, _, table = result.partition("what worker and job evicted")
    rows = [line.split() for line in table.splitlines() if line.startswith("  departures.")]
    assert sum(int(flights.replace(",", "")) for _, flights, *_ in rows) == FLIGHTS
    for _, flights, by_worker, by_job, equal in rows:
        assert by_worker == by_job == str(max(0, int(flights) - RING_SIZE))
        assert equal == "yes"
    assert "everything equal and accounted for" in result
    assert "Python worker" not in result + done.stderr
    assert (tmp_path / "ringfaust-report" / "report.html").stat().st_size > 0
    assert "ringfaust spark ring" in (tmp_path / "ringfaust-report" / "demo.log").read_text()
    assert list(tmp_path.joinpath("tmp").glob("ringfaust-*")) == []


@pytest.mark.parametrize("flights", ["0", "-3", "many"])
def test_an_invalid_number_of_flights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flights: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["spark", "demo", f"--flights={flights}"])
    assert done.exit_code == 2
    assert f"flights = '{flights}': must be a number such as 60000, or all" in done.stderr
    assert list(tmp_path.iterdir()) == []


# --- errors and differences------------------------------------------------------------------------


@pytest.fixture
def dashboard() -> Dashboard:
    return Dashboard(Console(width=100), DemoState(""))


def test_a_failed_command_shows_the_end_of_its_log(dashboard: Dashboard, tmp_path: Path) -> None:
    commands = CommandRunner(dashboard, tmp_path, tmp_path / "demo.log")
    with pytest.raises(CommandFailed) as caught:
        commands.run("topics", "plan", "--config", "nowhere")
    said = str(caught.value)
    assert "`ringfaust topics plan --config nowhere` failed with exit status 2" in said
    assert f"its log, {tmp_path / 'demo.log'}:" in said
    assert "nowhere" in said.rpartition("demo.log:")[2]


def test_status_1_of_a_verdict_is_a_result(dashboard: Dashboard, tmp_path: Path) -> None:
    commands = CommandRunner(dashboard, tmp_path, tmp_path / "demo.log")
    file = tmp_path / "fails.yaml"
    file.write_text(
        "{id: fails, says: it does not hold, rules: [R1], queues: {q: {ring_size: 2}}, "
        "steps: [{state: {queue: q, ready: [A]}}]}"
    )
    assert commands.run("scenario", str(file), verdict=True).returncode == 1


def evicted(sequence: int, value: bytes = b"{}", **more: bytes) -> EvictedRecord:
    source = b"flights/0/%d" % sequence
    headers = {h.QUEUE: b"departures.UA", h.SEQUENCE: b"%d" % sequence, h.SOURCE: source, **more}
    return EvictedRecord(b"UA", value, tuple(headers.items()))


def differing() -> Iterator[tuple[list[EvictedRecord], str]]:
    one, two = evicted(1), evicted(2)
    yield [one], "eviction 2 is b'UA' b'{}'"
    yield [two, one], "eviction 1 is"
    yield [one, evicted(2, b"[]")], "eviction 2 is"
    yield [one, evicted(2, reason=b"full")], "eviction 2 is"
    yield [one, two, evicted(3)], "eviction 3 is missing by the worker"


@pytest.mark.parametrize(("theirs", "said"), list(differing()))
def test_each_difference_is_found(theirs: list[EvictedRecord], said: str) -> None:
    ours = [evicted(1), evicted(2)]
    assert difference(RING_SIZE + 2, ours, theirs).startswith(said)


def test_the_same_error_in_both_is_found() -> None:
    both = [evicted(1), evicted(2)]
    assert difference(RING_SIZE + 2, both, both) == ""
    assert difference(RING_SIZE + 3, both, both) == "3 had to be evicted, 2 were"


@pytest.mark.parametrize(
    ("wrong", "balanced", "said"),
    [
        ("", True, "everything equal and accounted for"),
        ("eviction 2 is", True, "1 of 1 queues differ"),
        ("", False, "the worker's accounts do not balance"),
    ],
)
def test_the_final_screen_shows_the_result(
    dashboard: Dashboard, wrong: str, balanced: bool, said: str
) -> None:
    found = [QueueComparison("departures.UA", 52, 2, 2, wrong)]
    with dashboard.console.capture() as captured:
        right = print_result(dashboard, found, balanced=balanced, report=Path("report"))
    result = captured.get()
    assert right is (balanced and not wrong)
    assert said in result
    assert ("everything equal" in result) is right
