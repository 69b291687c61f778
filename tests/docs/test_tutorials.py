"""The commands of tutorials and how-tos, run in order against one broker.

`pip install`, `ringfaust broker` and the worker of `shop` are not run: the fixture does their work.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.testing.broker import EmbeddedBroker, free_port
from tests.chaos.harness import STOP_S, Application, command, environment
from tests.docs.pages import ROOT

pytestmark = pytest.mark.kafka

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("[1-9]*.md"))
PAGES = [*TUTORIALS, *sorted((ROOT / "docs" / "how-to").glob("[a-z]*.md"))]
NOT_RUN = (
    "python3 -m venv",
    ". ring/bin/activate",
    "pip install",
    "ringfaust broker",
    "ringfaust worker --config shop",
    "prometheus ",
    "ringfaust spark audit",
)
NEEDED = {"promtool": "prometheus", "curl": "curl", "java": "a JDK"}
"""Programs that a machine may lack, and what to install."""
LOOKS = {"ls", "show", "browse", "tail", "count", "trace", "curl", "alarm.py"}
LANGUAGES = "yaml", "python", "xml", "java"
DEADLINE_S = 60
CUT = "…"


def blocks(page: Path, language: str) -> list[str]:
    pattern = rf"^( *)```{language}\n(.*?)^\1```"
    found = re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)
    return [dedent(block) for _, block in found]


def named_file(block: str) -> tuple[str, str]:
    """The name in a block's first line, a comment, and the block."""
    return block.partition("\n")[0].strip("#/<!-> "), block


def files(page: Path) -> Iterator[tuple[str, str]]:
    """The files that a page has its reader save."""
    for language in LANGUAGES:
        yield from map(named_file, blocks(page, language))


def configured() -> tuple[dict[str, Any], dict[str, Any]]:
    """worker.yaml and queues.yaml as they are after the pages were followed."""
    found: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        for name, text in map(named_file, blocks(page, "yaml")):
            known = found.setdefault(name.removeprefix("add to "), {})
            for key, value in yaml.safe_load(text).items():
                if isinstance(value, list):
                    known[key] = [*known.get(key, []), *value]
                elif isinstance(value, dict):
                    known[key] = {**known.get(key, {}), **value}
                else:
                    known[key] = value
    return found["shop/worker.yaml"], found["shop/queues.yaml"]


class Reader:
    """Somebody who follows the pages in a folder."""

    def __init__(self, folder: Path, servers: str, web_port: int) -> None:
        self._folder = folder
        self._here = {"127.0.0.1:9092": servers, "127.0.0.1:6066": f"127.0.0.1:{web_port}"}
        self._workers: list[subprocess.Popen[bytes]] = []

    def save(self, name: str, text: str) -> None:
        (self._folder / name).write_text(self._adapted(text))

    def _adapted(self, text: str) -> str:
        for address, ours in self._here.items():
            text = text.replace(address, ours)
        return text

    def run(self, line: str) -> str:
        """What a command prints."""
        program, *arguments = shlex.split(line)
        if program == "ringfaust":
            if arguments[0] == "worker":
                return self._start_worker(arguments)
            result = CliRunner().invoke(main, arguments)
            assert "Traceback" not in result.output
            if arguments[0] == "import" and "--to" in arguments:
                self._use_our_brokers(self._folder / arguments[-1] / "worker.yaml")
            return result.output
        if program in NEEDED and shutil.which(program) is None:
            pytest.skip(f"needs {NEEDED[program]}")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", self._adapted(line)], capture_output=True, text=True, check=False,
            cwd=self._folder, env=environment() | {"PATH": path}, timeout=DEADLINE_S,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def _use_our_brokers(self, worker: Path) -> None:
        """Other tests share the brokers, so the application gets a name of its own."""
        name = f"application: moved-{uuid.uuid4().hex[:6]}"
        worker.write_text(self._adapted(worker.read_text()).replace("application: ringfaust", name))

    def _start_worker(self, arguments: list[str]) -> str:
        with (self._folder / "worker.log").open("ab") as log:
            self._workers.append(
                subprocess.Popen(
                    command(*arguments, "--data-dir", self._folder / "data"),
                    stdout=log, stderr=log, env=environment(), cwd=self._folder,
                )
            )  # fmt: skip
        return ""

    def end(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
            worker.wait(STOP_S)

    def follow(self, line: str, shown: list[str]) -> None:
        """Run a command until it prints what is shown; one that changes something only once.

        Where a page shows what a command prints, it shows all lines, or `CUT` in place of some.
        """
        looks = LOOKS & set(line.split()[:3])
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            printed = {like(each) for each in self.run(line).splitlines()}
            wanted = {like(each) for each in shown}
            missing = wanted - printed - {CUT}
            hidden = set() if CUT in wanted or not shown else printed - wanted - {""}
            if not missing and not hidden:
                return
            assert looks and time.monotonic() < deadline_s, (line, missing, hidden)


def like(line: str) -> str:
    """A line without what differs each time: times, sizes, deliveries, places, column widths."""
    times = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?Z|\d+(\.\d)? (s|min)\b"
    sizes = r"\b\d+(?= bytes)|(?<=delivery )\d+"
    place = r"application \S+ at [\w.:]+"
    return " ".join(re.sub(f"{times}|{sizes}|{place}", "T", line).split())


@pytest.fixture(scope="module")
def reader(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("tutorials")
    worker, queues = configured()
    servers, port = broker.bootstrap_servers, free_port()
    worker["web"] = {**worker["web"], "port": port}
    app = Application(folder / "app", servers, queues, **{**worker, "bootstrap_servers": servers})
    (folder / "shop").symlink_to(app.config_dir)
    app.create_topics()
    app.new_worker()
    before = Path.cwd()
    os.chdir(folder)
    reader = Reader(folder, servers, port)
    yield reader
    os.chdir(before)
    reader.end()
    app.end()


def steps(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines that it prints."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command_line, *shown = part.splitlines()
            yield command_line, [line for line in shown if line.strip()]


def test_the_index_lists_all() -> None:
    index = (TUTORIALS[0].parent / "README.md").read_text()
    assert re.findall(r"^(\d)\. \[.*\]\((.*)\)$", index, re.MULTILINE) == [
        (page.name[0], page.name) for page in TUTORIALS
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_print_what_it_shows(reader: Reader, page: Path) -> None:
    for name, text in (*files(PAGES[0]), *files(page)):
        if "shop/" not in name:
            reader.save(name, text)
    for line, shown in steps(page):
        if not line.startswith(NOT_RUN):
            reader.follow(line, shown)
