"""What a machine lacks is reported at once, in a sentence that says what to do."""

from __future__ import annotations

import re
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfaust.cli import parts
from ringfaust.cli.main import main
from ringfaust.cli.parts import SPARK_MODULES
from ringfaust.demo import flights
from ringfaust.testing.broker import EmbeddedBroker

ROOT = Path(__file__).parents[2]
SPARK_COMMANDS = [
    "ring --checkpoint c",
    "move-to-worker --checkpoint c",
    "lake --to l",
    "audit",
    "backfill f --format csv --topic t",
    "redrive --lake l --from dead --where true",
    "rewind --queue orders --at 1",
    "maintain --lake l",
    "demo",
]
PACKAGES = {"delta-spark": "delta", "protobuf": "google.protobuf"}
"""The modules of packages that have another name."""


def run(*arguments: str):
    return CliRunner().invoke(main, arguments)


def refusal(*arguments: str) -> str:
    """The one line with which a command refuses to run, with exit status 2."""
    failed = run(*arguments)
    assert failed.exit_code == 2
    assert failed.stderr.startswith("ringfaust: ")
    assert failed.stderr.count("\n") == 1
    return failed.stderr


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> ModuleSpec | None:
        if name == "google.protobuf":
            raise ModuleNotFoundError(name)
        return None

    monkeypatch.setattr(parts, "find_spec", find)


@pytest.mark.parametrize("command", SPARK_COMMANDS)
@pytest.mark.usefixtures("without_spark")
def test_a_spark_command_without_the_extra_names_the_command_that_installs_it(command: str):
    assert "pip install '.[spark]'" in refusal("spark", *command.split())
    assert run("spark", command.split(maxsplit=1)[0], "--help").exit_code == 0


@pytest.mark.usefixtures("without_spark")
def test_scenarios_on_spark_need_the_extra_and_others_do_not():
    scenario = str(ROOT / "tests/scenarios/ring-off.yaml")
    assert "'.[spark]'" in refusal("scenario", scenario, "--host", "spark")
    assert run("scenario", scenario).exit_code == 0


def test_every_spark_command_is_tested_here():
    shown = run("spark", "--help").stdout.partition("Commands:")[2]
    commands = re.findall(r"^  (\S+)", shown, re.MULTILINE)
    assert sorted(commands) == sorted(line.split()[0] for line in SPARK_COMMANDS)


def test_the_modules_are_those_of_the_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split("[=<>]", line)[0] for line in extras["optional-dependencies"]["spark"]]
    assert sorted(PACKAGES.get(name, name) for name in names) == sorted(SPARK_MODULES)


@pytest.mark.parametrize("command", [["demo"], ["spark", "demo"]])
def test_a_demo_without_the_flights_starts_no_broker(
    command: list[str], monkeypatch: pytest.MonkeyPatch
):
    def start(_: EmbeddedBroker) -> None:
        raise AssertionError("it started a broker")

    monkeypatch.setattr(EmbeddedBroker, "start", start)
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    assert "pip install '.[demo]'" in refusal(*command)


@pytest.fixture
def a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").touch()
    return tmp_path / "file"


def test_a_cache_folder_that_cannot_be_used_is_named(a_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RINGFAUST_CACHE", str(a_file))
    monkeypatch.setattr("ringfaust.testing.broker.find_java", lambda: None)
    message = refusal("broker", "--port", "29092")
    assert f"{a_file}, cannot be used: " in message
    assert "Set RINGFAUST_CACHE to a folder that you can write to" in message


def test_a_data_folder_of_the_broker_that_is_a_file_is_named(
    a_file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ringfaust.testing.broker.find_java", lambda: None)
    monkeypatch.setattr("ringfaust.testing.broker.fetch", lambda bundle: None)
    message = refusal("broker", "--port", "29092", "--data-dir", str(a_file))
    assert f"{a_file} cannot be used: File exists. Choose another folder" in message


def test_a_data_directory_that_is_a_file_is_refused_before_the_brokers_are_asked(a_file: Path):
    message = refusal("worker", "--data-dir", str(a_file), "--bootstrap-servers", "127.0.0.1:9")
    assert f"data directory {a_file} cannot be used: File exists. It must be a folder" in message
