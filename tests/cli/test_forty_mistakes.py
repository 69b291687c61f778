"""Forty mistakes that a person makes: what is said, the exit status, and the seconds.

The seconds are printed as a table (`pytest -s`), and no test depends on them: what bounds them is
tested in test_reach.py.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.client import Admin
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka

_QUEUES = {
    "routes": [{"topic": "shop-in", "queue": "orders"}],
    "queues": {"orders": {"ring_size": 3}, "parked": {}},
}
MISTAKES = (
    # Where it is: no place, a wrong one, or one that does not answer.
    ("queue set orders ring_size=5", "no --config or context says where"),
    ("queue purge orders {shop}", "That is in the application app-"),
    ("queue ls --config nowhere", "nowhere cannot be used:\n  not a folder"),
    ("queue ls --config broken", "queues.yaml cannot be used:\n  line 1, quues"),
    ("queue ls --bootstrap-servers localhost", "'localhost' is not a broker's address"),
    ("queue ls --bootstrap-servers 127.0.0.1:1", "127.0.0.1:1 cannot be reached (Connection ref"),
    ("queue ls --bootstrap-servers {hang}", "{hang} accepts connections, but does not answer"),
    ("dead ls --bootstrap-servers {hang}", "{hang} accepts connections, but does not answer"),
    ("trace m --bootstrap-servers {hang}", "it hangs, or `security` is wrong"),
    ("worker ls --bootstrap-servers {hang}", "{hang} accepts connections, but does not answer"),
    ("send shop-in x --bootstrap-servers {hang}", "{hang} accepts connections, but does not"),
    ("topics plan --bootstrap-servers {hang}", "No Kafka broker answers at {hang}"),
    ("queue ls {shop} --application shpo", "there is no topic shpo.replies: check the application"),
    ("context use shpo", "there is no context 'shpo'"),
    ("context add shop", "name the application: give --config"),
    # No worker lives.
    ("queue show orders {idle}", "lives: none was started, or the last"),
    ("queue pause orders {idle}", "Nothing was sent, so nothing changes later"),
    ("receive orders {idle}", "Start a worker: ringfaust worker --config DIR"),
    ("xid commit transfer --yes {idle}", "lives: none was started, or the last"),
    # Sends that nobody would read.
    ("send orders x {shop}", "topic orders is read by no route of queues.yaml. Routed topics: sho"),
    ("send shop-on x {shop}", "did you mean shop-in?"),
    ("send {app}.control x --yes {only}", "topic {app}.control belongs to the application '{app}'"),
    ("send shop-on x --yes {only}", "is read by no route of the application '{app}'. Routed top"),
    ("send shop-in {shop}", "there is nothing to send: give a BODY"),
    ("send shop-in x --header eu {shop}", "--header: 'eu': write headers as NAME=VALUE"),
    # Names and values.
    ("queue shw orders {shop}", "No such command 'shw'"),
    ("queue show ordrs {shop}", "unknown_queue 'ordrs'"),
    ("queue set orders ring_sise=5 {shop}", "'ring_sise' is not a setting; did you mean 'ring_"),
    ("queue set orders ring_size=many {shop}", "ring_size = 'many'"),
    ("queue set orders ring_size 5 {shop}", "'ring_size': write settings as NAME=VALUE"),
    ("message show orders m-1 {shop}", "queue orders has no message 'm-1' now; `ringfaust"),
    ("message browse orders --selector priority> {shop}", "selector"),
    ("receive orders --settle take {shop}", "'take' is not one of 'browse', 'ack', 'release'"),
    ("receive orders\x1b[2J {shop}", "unknown_queue 'orders\\x1b[2J'"),
    ("dead redrive --yes {shop}", "name the messages: give --id, --queue"),
    ("partition retry 0 {shop}", "partition 0 has not stopped: it is serving"),
    # Times.
    ("dead ls --since 3600 {shop}", "--since: '3600' has no unit; write it like 1h, yesterday"),
    ("trace m --since 1764200000000 {shop}", "'1764200000000' has no unit"),
    ("evicted count --since noon {shop}", "--since: 'noon' is not a time"),
    ("receive orders --wait 5 {shop}", "--wait: '5' has no unit; write it like 500ms, 5s"),
)  # fmt: skip
SECONDS: list[tuple[str, int, float, str]] = []


def _application(folder: Path, broker: EmbeddedBroker) -> Application:
    app = Application(folder, broker.bootstrap_servers, _QUEUES, partitions=1)
    app.create_topics()
    return app


@pytest.fixture(scope="module")
def places(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    """An application with a worker, one without, and a broker that hangs."""
    shop, idle = (_application(tmp_path_factory.mktemp(name), broker) for name in ("shop", "idle"))
    name = shop.worker_config.application
    shop.new_worker()

    async def ready() -> None:
        async with Admin(bootstrap_servers=shop.servers, application=name) as admin:
            await admin.queues()

    asyncio.run(ready())
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # it never accepts
        yield {
            "shop": f"--config {shop.config_dir}",
            "idle": f"--config {idle.config_dir}",
            "only": f"--bootstrap-servers {shop.servers} --application {name}",
            "app": name,
            "hang": f"127.0.0.1:{hangs.getsockname()[1]}",
        }
    shop.end()
    for command, status, seconds, said in SECONDS:
        print(f"{seconds:5.1f} s  {status}  ringfaust {command}\n         {said}")


def test_there_are_forty() -> None:
    assert len({command for command, _ in MISTAKES}) == 40


@pytest.mark.parametrize(("command", "said"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_a_mistake_is_explained_in_one_sentence(
    places: Mapping[str, str],
    command: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "queues.yaml").write_text("quues: {}\n")
    arguments = command.format(**places).split()
    began_s = time.monotonic()
    result = CliRunner().invoke(main, arguments)
    SECONDS.append((command, result.exit_code, time.monotonic() - began_s, result.stderr.strip()))
    assert result.exit_code == 2, result.output
    assert said.format(**places) in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr
