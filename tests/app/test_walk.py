"""docs/handlers.md, "Five minutes from an empty folder", as somebody follows it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ringfaust.client.sync import Admin
from ringfaust.testing.broker import EmbeddedBroker
from tests.app.test_page import PAGE
from tests.chaos.harness import command, environment
from tests.client.test_documents import blocks, section

pytestmark = pytest.mark.kafka
DEADLINE_S = 60
HERE = "127.0.0.1:9092"
FIVE_MINUTES = section(PAGE, "Five minutes from an empty folder")


@contextmanager
def program(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program that the page starts and nobody ends but the test."""
    started = subprocess.Popen(
        arguments, cwd=folder, env=environment(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def commands() -> list[list[str]]:
    (block,) = blocks(FIVE_MINUTES, "console")
    return [line.removeprefix("$ ").partition("#")[0].split() for line in block.splitlines()]


def test_the_page_leads_from_an_empty_folder_to_a_handled_order(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    with EmbeddedBroker() as broker, ExitStack() as opened:
        where = {"bootstrap_servers": broker.bootstrap_servers, "application": "shop"}
        for language in ("yaml", "python"):
            for block in blocks(FIVE_MINUTES, language):
                name = block.partition("\n")[0].removeprefix("# ")
                (tmp_path / name).write_text(block.replace(HERE, broker.bootstrap_servers))
        start, create, worker, run, send = commands()
        assert start[:2] == ["ringfaust", "broker"]  # the test's own broker takes its place
        subprocess.run(command(*create[1:]), cwd=tmp_path, env=environment(), check=True)
        opened.enter_context(program(tmp_path, *command(*worker[1:], "--data-dir", "data")))
        app = opened.enter_context(program(tmp_path, *command(*run[1:])))
        python = command()[0]
        subprocess.run([python, *send[1:]], cwd=tmp_path, env=environment(), check=True)
        admin = opened.enter_context(Admin(**where))
        deadline_s = time.monotonic() + DEADLINE_S
        while admin.queue("orders").counts["acked"] < 1:
            assert app.poll() is None, app.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        app.send_signal(signal.SIGTERM)
        said, _ = app.communicate(timeout=DEADLINE_S)
        assert app.returncode == 0
        assert "charged 3 for eggs" in said
        assert admin.queue("invoices").counts["ready"] == 1
