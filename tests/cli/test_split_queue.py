"""Commands about a queue that two partitions have, without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from generate.files import ROOT
from generate.schemas import output_file
from ringfaust import client
from ringfaust.cli import reach
from ringfaust.cli.main import main
from ringfaust.client import Admin
from ringfaust.config import WorkerConfig
from ringfaust.core.catalog import Configuration
from tests.client.test_admin import Joined


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Joined:
    joined = Joined()

    def made(**_: object) -> Admin:
        admin = Admin()
        admin.connection = joined
        return admin

    async def reached(worker: WorkerConfig) -> WorkerConfig:
        return worker

    async def is_answered(_: WorkerConfig) -> None: ...

    async def history(_: Admin) -> list[Configuration]:
        return []

    monkeypatch.setattr(client, "Admin", made)
    monkeypatch.setattr(Admin, "history", history)
    monkeypatch.setattr(reach, "reached", reached)
    monkeypatch.setattr(reach, "check_worker", is_answered)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queues.yaml").write_text("queues: {q: {}}\n")
    joined.processors[1].send("q", "a")
    return joined


def run(*command: str) -> str:
    result = CliRunner().invoke(main, [*command, "--config", "."])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def show(*options: str) -> str:
    return run("queue", "show", "q", *options)


def test_json_has_every_partition_of_the_queue(joined: Joined) -> None:
    schema = json.loads((ROOT / output_file("queue show")).read_text("utf-8"))
    found = json.loads(show("--json"))
    jsonschema.validate(found, schema)
    assert (found["partition"], found["also_in"], found["others"]) == (1, [], [])
    for message in ("b", "c"):
        joined.processors[0].send("q", message)
    found = json.loads(show("--json"))
    jsonschema.validate(found, schema)
    (other,) = found["others"]
    assert (found["partition"], found["counts"]["added"]) == (0, 2)
    assert (other["partition"], other["counts"]["added"]) == (1, 1)


def test_the_text_ends_with_its_last_line(joined: Joined) -> None:
    assert show().splitlines()[-1].split() == ["added", "1"]
    joined.processors[0].send("q", "b")
    shown = show().splitlines()
    assert [line.split() for line in shown].count(["queue", "q"]) == 2
    assert shown[-1].startswith("q is in partitions 0, 1: ")
    assert shown[-2] == ""
    assert ("", "") not in zip(shown, shown[1:], strict=False)


def test_a_scheduled_message_is_listed_once(joined: Joined) -> None:
    joined.processors[1].send("q", "late", ringfaust_delay_ms="9000")
    joined.processors[0].send("q", "soon", ringfaust_delay_ms="5000")
    joined.processors[0].send("q", "later", ringfaust_delay_ms="99000")
    found = json.loads(run("scheduled", "ls", "--json"))
    assert [each["id"] for each in found] == ["soon", "late", "later"]
    found = json.loads(run("scheduled", "ls", "--json", "--limit", "2"))
    assert [each["id"] for each in found] == ["soon", "late"]


def test_it_is_watched_in_both(joined: Joined) -> None:
    joined.processors[0].send("q", "b")
    joined.processors[0].send("q", "c")
    rows = [line.split() for line in run("queue", "watch", "q", "--times", "1").splitlines()]
    assert [row[:2] for row in rows if row[:1] == ["q"]] == [["q", "2"], ["q", "1"]]
