"""The commands of the tutorials, run in order against one broker and one worker.

`pip install`, `ringfaust broker` and `ringfaust worker` are not run: the fixture does their work.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application, environment
from tests.docs.pages import ROOT

pytestmark = pytest.mark.kafka

PAGES = sorted((ROOT / "docs" / "tutorials").glob("[1-9]*.md"))
NOT_RUN = ("pip install", "ringfaust broker", "ringfaust worker")
LOOKS = {"ls", "show", "browse", "tail", "count", "trace"}
DEADLINE_S = 60


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def named_file(block: str) -> tuple[str, str]:
    """The name in a block's first line, a comment, and the rest."""
    first, _, rest = block.partition("\n")
    return first.removeprefix("# "), rest


def configured() -> tuple[dict[str, Any], dict[str, Any]]:
    """worker.yaml and queues.yaml as they are after the pages were followed."""
    files: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        for name, text in map(named_file, blocks(page, "yaml")):
            known = files.setdefault(name.removeprefix("add to "), {})
            for key, value in yaml.safe_load(text).items():
                if isinstance(value, list):
                    known[key] = [*known.get(key, []), *value]
                elif isinstance(value, dict):
                    known[key] = {**known.get(key, {}), **value}
                else:
                    known[key] = value
    return files["shop/worker.yaml"], files["shop/queues.yaml"]


class Reader:
    """Somebody who follows the pages in a folder."""

    def __init__(self, folder: Path, servers: str) -> None:
        self._folder = folder
        self._servers = servers

    def save(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text.replace("127.0.0.1:9092", self._servers))

    def run(self, command: str) -> str:
        """What a command prints."""
        program, *arguments = shlex.split(command)
        if program == "ringfaust":
            result = CliRunner().invoke(main, arguments)
            assert "Traceback" not in result.output
            return result.output
        assert program == "python"
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=False,
            cwd=self._folder, env=environment(), timeout=DEADLINE_S,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def follow(self, command: str, shown: list[str]) -> None:
        """Run a command until it prints what is shown; one that changes something only once."""
        looks = LOOKS & set(command.split()[:3])
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            printed = {like(line) for line in self.run(command).splitlines()}
            missing = [line for line in shown if like(line) not in printed]
            if not missing:
                return
            assert looks and time.monotonic() < deadline_s, (command, missing, printed)


def like(line: str) -> str:
    """A line without what differs each time: times, numbers of bytes, and widths of columns."""
    times = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?Z|\d+(\.\d)? (s|min)\b|\b\d+(?= bytes)"
    return " ".join(re.sub(times, "T", line).split())


@pytest.fixture(scope="module")
def reader(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("tutorials")
    worker, queues = configured()
    servers = broker.bootstrap_servers
    app = Application(folder / "app", servers, queues, **{**worker, "bootstrap_servers": servers})
    (folder / "shop").symlink_to(app.config_dir)
    app.create_topics()
    app.new_worker()
    before = Path.cwd()
    os.chdir(folder)
    yield Reader(folder, servers)
    os.chdir(before)
    app.end()


def steps(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines that it prints."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, [line for line in shown if line.strip()]


def test_there_are_five() -> None:
    assert len(PAGES) == 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_tutorial_print_what_it_shows(reader: Reader, page: Path) -> None:
    for name, text in (named_file(each) for each in blocks(PAGES[0], "python")):
        reader.save(name, text)
    for name, text in (named_file(each) for each in blocks(page, "python")):
        reader.save(name, text)
    for command, shown in steps(page):
        if not command.startswith(NOT_RUN):
            reader.follow(command, shown)
