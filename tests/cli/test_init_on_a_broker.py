"""`ringfaust init` on a real broker: from a script, and answered in a terminal."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pexpect
import pytest

from ringfaust.config import load
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application, command, environment

DEADLINE_S = 60


@pytest.mark.kafka
def test_yes_writes_a_configuration_and_creates_the_topics(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name, folder = f"init-{uuid.uuid4().hex[:6]}", tmp_path / "new"
    arguments = (
        "init", folder, "--yes", "--bootstrap-servers", broker.bootstrap_servers,
        "--topic", f"{name}-orders", "--ring-size", "3", "--application", name,
    )  # fmt: skip
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"created {name}.control" in done.stdout and f"created {name}-orders" in done.stdout
    verified = ("topics", "verify", "--config", folder)
    assert subprocess.run(command(*verified), check=False, env=environment()).returncode == 0


@pytest.mark.kafka
def test_five_answers_in_a_terminal(broker: EmbeddedBroker, tmp_path: Path) -> None:
    name = f"init-{uuid.uuid4().hex[:6]}"
    topic = f"!{name}"[1:]
    made = {"routes": [{"topic": topic, "queue": "q"}], "queues": {"q": {}}}
    Application(tmp_path / "app", broker.bootstrap_servers, made, partitions=3).create_topics()
    folder = tmp_path / "new"
    child = pexpect.spawn(
        sys.executable, ["-m", "ringfaust", "init", str(folder)], env=environment(),
        timeout=DEADLINE_S, encoding="utf-8", dimensions=(60, 120),
    )  # fmt: skip
    try:
        child.expect("1/5  Which brokers")
        child.send("\x15" + "\b" * 20 + broker.bootstrap_servers + "\r")
        child.expect("2/5  Which topics")
        child.expect("a new topic")
        child.send(" \r")  # the first choice, however many topics the broker has
        child.expect("2/5  Name of the new topic")
        child.send("\b" * 10 + f"{name}-new\r")
        child.expect("3/5  How many rings")
        child.send("\x1b[B\r")  # down: one ring for each key
        child.expect("4/5  How many messages")
        child.send("\b" * 5 + "12\r")
        child.expect("5/5  What is the application called")
        child.send("\b" * 12 + f"{name}\r")
        child.expect("Create the missing topics now")
        child.send("n")
        child.expect("next: ringfaust worker --config")
        child.expect(pexpect.EOF)
    finally:
        child.close()
    assert child.exitstatus == 0
    worker, queues = load(folder)
    assert (worker.application, worker.bootstrap_servers) == (name, broker.bootstrap_servers)
    assert (
        queues.routes[0].topic == f"{name}-new" and queues.routes[0].queue == f"{name}-new.{{key}}"
    )
    assert queues.catalog().spec(f"{name}-new.k", {}).ring_size == 12
