"""Contexts, and that a command which changes something knows where it is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ringfaust.cli import partition, redrive
from ringfaust.cli.main import main
from ringfaust.client.lifecycles import Trace
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.applied import InUse
from ringfaust.config.contexts import contexts_file, find_place
from ringfaust.redrive.plan import RedriveContext, RedrivePlan

Run = Callable[..., Result]

_NOWHERE = "127.0.0.1:1"
_UNREACHED = f"at {_NOWHERE}"
"""What a command says that went on and found no broker."""
_ASKED = "no --config or context says where"
CHANGES = (
    "queue set orders ring_size=5", "queue pause orders", "queue resume orders",
    "queue create audit", "message move orders m parked", "message deliver-now orders m",
    "partition retry 1", "topics create", "send orders x", "receive orders --settle ack",
)  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shop(home: Path) -> Path:
    """A configuration whose brokers do not answer."""
    folder = home / "shop"
    folder.mkdir()
    (folder / "worker.yaml").write_text(f"application: shop\nbootstrap_servers: {_NOWHERE}\n")
    (folder / "queues.yaml").write_text("routes: [{topic: t, queue: orders}]\nqueues: {orders: {}}")
    return folder


async def reached(worker: WorkerConfig) -> WorkerConfig:
    """Brokers that answer."""
    return worker


def run(command: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == status, result.output
    return result.output


def test_a_context_is_added_chosen_shown_listed_and_removed(shop: Path) -> None:
    assert run("context ls") == "there are no contexts; `ringfaust context add` adds one\n"
    where = f"application shop at {_NOWHERE}"
    assert run("context add shop --config shop") == f"shop: added to {contexts_file()}: {where}\n"
    run("context add test --bootstrap-servers test:9092 --application shop")
    assert find_place(None).is_named is False
    assert run("context use shop") == f"commands now use the context shop: {where}\n"
    assert run("context ls").splitlines() == [
        "context  current  config" + " " * (len(str(shop)) - 4) + "bootstrap servers  application",
        f"shop     current  {shop}",
        "test              " + " " * len(str(shop)) + "  test:9092          shop",
    ]
    (listed, _) = json.loads(run("context ls --json"))
    assert (listed["name"], listed["is_current"], listed["config"]) == ("shop", True, str(shop))
    assert "application        shop\nbootstrap servers  127.0.0.1:1\n" in run("context show")
    assert "bootstrap servers  test:9092\n" in run("context show test")
    assert json.loads(run("context show --json")) == {
        **listed,
        "application": "shop",
        "bootstrap_servers": _NOWHERE,
    }
    assert run("context rm shop") == "shop: removed; no context is chosen now\n"
    assert "no context is chosen" in run("context show", 2)


def test_the_file_has_where_the_configuration_is_and_nothing_of_it(shop: Path) -> None:
    (shop / "worker.yaml").write_text("application: secret\n")
    run("context add shop --config shop")
    text = contexts_file().read_text()
    assert text == f"contexts:\n  shop:\n    config: {shop}\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("context use shpo", "there is no context 'shpo'; did you mean 'shop'?"),
        ("context rm other", "there is no context 'other'; known: shop"),
        ("context add shop --config shop", "there is a context 'shop' already"),
        ("context add new", "name the application: give --config"),
        ("context add \udcff --config shop", "name and folder must be UTF-8 text"),
        ("context add new --config nowhere", "nowhere cannot be used:\n  not a folder"),
    ],
)
def test_a_mistake_with_contexts_changes_nothing(shop: Path, command: str, said: str) -> None:
    run("context add shop --config shop")
    before = contexts_file().read_text()
    assert said in run(command, 2)
    assert contexts_file().read_text() == before


def test_a_context_whose_folder_is_gone_is_not_chosen(shop: Path) -> None:
    run("context add shop --config shop")
    shop.rename("elsewhere")
    assert f"{shop} cannot be used:\n  not a folder" in run("context use shop", 2)
    assert find_place(None).is_named is False


def test_a_chosen_context_says_if_the_environment_names_another(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("context add shop --config shop")
    monkeypatch.setenv("RINGFAUST_CONFIG", str(shop))
    assert "but not in this shell, where RINGFAUST_CONFIG names" in run("context use shop")


def test_a_file_that_is_not_valid_is_named_with_its_line(home: Path) -> None:
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text("contexts:\n  shop: {confg: x}\n")
    said = run("queue ls", 2)
    assert f"{contexts_file()} cannot be used" in said
    assert "line 2, contexts.shop.confg" in said


@pytest.mark.parametrize("command", CHANGES)
def test_a_change_of_what_nothing_names_is_refused(command: str) -> None:
    said = run(command, 2)
    assert _ASKED in said
    assert "application ringfaust at 127.0.0.1:9092. Nothing was changed: add --yes" in said


def test_on_a_terminal_it_asks(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfaust.cli.operate.is_terminal", lambda: True)
    commit = ["xid", "commit", "t", "--config", str(shop)]
    assert _UNREACHED in CliRunner().invoke(main, commit, input="Y").stderr
    result = CliRunner().invoke(main, ["receive", "orders", "--settle", "ack"])  # and Ctrl-D
    assert (result.exit_code, result.stdout) == (2, "")  # where the bodies would be
    assert _ASKED in result.stderr
    assert "in the application ringfaust at 127.0.0.1:9092. Go on? [y/N]: " in result.stderr
    assert "Nothing was changed." in result.stderr


@pytest.mark.parametrize(
    "named",
    ["--config shop", f"--bootstrap-servers {_NOWHERE}", "context", "RINGFAUST_CONFIG",
     "RINGFAUST_BOOTSTRAP_SERVERS"],
)  # fmt: skip
def test_what_is_named_is_not_asked_for(
    shop: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ""
    if named == "context":
        run("context add shop --config shop")
        run("context use shop")
    elif named.startswith("RINGFAUST"):
        monkeypatch.setenv(named, str(shop) if named.endswith("CONFIG") else _NOWHERE)
    else:
        options = named
    said = run(f"queue set orders ring_size=5 {options}", 2)
    assert _ASKED not in said
    assert _UNREACHED in said


def test_an_option_names_another_application_than_the_context(shop: Path) -> None:
    run("context add shop --config shop")
    run("context use shop")
    assert find_place(None).folder == shop
    assert find_place(None, "here:1") == (None, "here:1", None, True)
    assert find_place(shop / "other") == (shop / "other", None, None, True)


def test_a_setting_of_a_context_is_not_said_to_be_of_the_command_line(home: Path) -> None:
    run("context add test --bootstrap-servers test:9092 --application shop")
    run("context use test")
    for command, source in (
        ("config show --json", "context"),
        ("config show --json --bootstrap-servers test:9092", "command line"),
    ):
        found = {each["name"]: each for each in json.loads(run(command))}
        assert found["bootstrap_servers"]["source"] == source
    assert found["application"]["source"] != "context"


def test_a_worker_uses_the_context(shop: Path) -> None:
    run("context add shop --config shop")
    run("context use shop")
    assert "No Kafka broker answers at 127.0.0.1:1" in run("worker", 2)
    assert f"{shop}/queues.yaml is valid" in run("config check")


def test_the_application_itself_says_how_many_partitions_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its brokers alone are named, so there is no worker.yaml of its own."""
    status = SimpleNamespace(workers=list, partitions=2)
    monkeypatch.setattr(partition, "with_status", lambda _, look: look(status))
    found = json.loads(run("partition ls --json --bootstrap-servers test:9092"))
    assert [each["partition"] for each in found] == ["0", "1"]


def test_a_redrive_looks_at_all_partitions_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """It remembers by partition what was sent again: it would send the rest twice."""
    contexts: list[RedriveContext] = []

    async def in_use(_: object, file: QueuesConfig) -> InUse:
        return InUse(file, file)

    @asynccontextmanager
    async def reader(_: object, topic: str) -> AsyncIterator[Any]:
        assert topic == "shop.dead"
        yield SimpleNamespace(partitions=8)

    async def find(context: RedriveContext, _: object) -> RedrivePlan:
        contexts.append(context)
        return RedrivePlan()

    for name, fake in (
        ("reached", reached), ("configuration_in_use", in_use), ("dead_reader", reader),
        ("find", find),
    ):  # fmt: skip
        monkeypatch.setattr(redrive, name, fake)
    command = "dead redrive --id m --dry-run --bootstrap-servers test:9092 --application shop"
    run(command)
    assert [each.partitions for each in contexts] == [8]
    assert "--partition: 8: there are 0 to 7" in run(f"{command} --partition 8", 2)


def test_a_trace_does_not_speak_of_a_file_that_nobody_has_named(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only brokers are named, it was the shipped example."""

    async def found(*_: object, **__: object) -> Trace:
        return Trace((), 0, 1, "that record is in the topic", ())

    monkeypatch.setattr("ringfaust.cli.trace.trace", found)
    monkeypatch.setattr("ringfaust.cli.trace.reached", reached)
    said = "no route of queues.yaml reads topic flights"
    assert said in run("trace flights/0/17 --config shop", status=1)
    assert said not in run("trace flights/0/17 --application shop", status=1)
