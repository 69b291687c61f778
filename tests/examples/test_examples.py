"""The examples in docs/examples/ run as they are, on a real worker and broker."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from ringfaust.java.jars import KAFKA, fetch
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import client_of
from tests.chaos.harness import ROOT, Application

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
EXAMPLES = ROOT / "docs" / "examples"
SECONDS = 400


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """The examples name the topics of an application called ringfaust, so the broker is theirs."""
    queues = {
        "routes": [
            {"topic": "messages", "queue": "{header:ringfaust-queue}"},
            {"topic": "done", "queue": "done"},
        ],
        "queues": {"jobs.#": {}, "done": {}},
    }
    folder = tmp_path_factory.mktemp("examples")
    with EmbeddedBroker() as broker:
        app = Application(folder / "app", broker.bootstrap_servers, queues, partitions=1)
        named = yaml.safe_load((app.config_dir / "worker.yaml").read_text())
        app.write("worker.yaml", {**named, "application": "ringfaust"})
        app.worker_config = app.worker_config.model_copy(update={"application": "ringfaust"})
        app.create_topics()
        app.new_worker()
        yield app
        app.end()


def go(folder: Path) -> list[str]:
    _needs("go")
    shutil.copytree(EXAMPLES / "go", folder / "go")
    program = str(folder / "example")
    _run(["go", "build", "-o", program, "."], folder / "go")
    return [program]


def node(folder: Path) -> list[str]:
    _needs("npm")
    shutil.copytree(
        EXAMPLES / "node", folder / "node", ignore=shutil.ignore_patterns("node_modules")
    )
    _run(["npm", "ci", "--no-fund", "--no-audit"], folder / "node")
    return ["node", str(folder / "node" / "consumer.js")]


def java(folder: Path) -> list[str]:
    _needs("javac")
    path = f"{fetch(KAFKA)}/*"
    _run(["javac", "-cp", path, "-d", str(folder), "java/RingExample.java"], EXAMPLES)
    return ["java", "-cp", f"{path}:{folder}", "RingExample"]


def kcat(folder: Path) -> list[str]:
    _needs("kcat")
    return ["sh", str(EXAMPLES / "kcat" / "consumer.sh")]


LANGUAGES = [go, java, node]


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda each: each.__name__)
async def test_a_client_attaches_receives_acks_releases_and_commits(
    language: Callable[[Path], list[str]], app: Application, tmp_path: Path
) -> None:
    command, queue = language(tmp_path), f"jobs.{language.__name__}"
    async with client_of(app) as client:
        before = len(await client.ready("done"))
        await client.send("messages", [f"{queue}-a", f"{queue}-b"], "any", ringfaust_queue=queue)
        await client.until_ready(queue, f"{queue}-a", f"{queue}-b")
        done = _run([*command, app.servers, queue, "done"], tmp_path)
        assert done.splitlines() == [
            "attached",
            f"received {queue}-a: x",
            f"acked {queue}-a",
            f"released {queue}-b",
            f"received {queue}-b again: true",
            "committed",
            "detached",
        ]
        counts = await client.counts(queue)
        assert (counts["acked"], counts["ready"], counts["delivering"]) == (2, 0, 0)
        assert len(await client.ready("done")) == before + 1


async def test_kcat_attaches_receives_acks_and_releases(app: Application, tmp_path: Path) -> None:
    command, queue = kcat(tmp_path), "jobs.kcat"
    async with client_of(app) as client:
        await client.send("messages", ["ka", "kb"], "any", ringfaust_queue=queue)
        await client.until_ready(queue, "ka", "kb")
        done = _run([*command, app.servers, queue], tmp_path)
        lines = ["attached", "acked ka", "released kb", "acked kb again", "detached"]
        assert done.splitlines() == lines
        assert (await client.counts(queue))["acked"] == 2


def _needs(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
