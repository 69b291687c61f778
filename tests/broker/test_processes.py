"""`ringfaust worker --processes`: several workers, with one port and one log."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ringfaust.testing.broker import EmbeddedBroker, free_port
from tests.broker.clients import client_of, some
from tests.chaos.harness import Application, command, environment, until

pytestmark = pytest.mark.kafka


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    route = {"topic": f"in-{tmp_path.name}", "queue": "{header:to}", "hop": "never"}
    queues = {"routes": [route], "queues": {"q": {"ring_size": 2}}}
    with Application(
        tmp_path / "app", broker.bootstrap_servers, queues, session_timeout_ms=6_000
    ) as app:
        yield app


def start(app: Application, log: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start two processes for the application of the current context."""
    choose(app, "ours")
    program = command("worker", "--processes", "2", "--data-dir", app.folder / "data", *more)
    env = environment() | {"XDG_CONFIG_HOME": str(app.folder)}
    with log.open("wb") as out:
        return subprocess.Popen(program, stderr=out, stdout=out, env=env, start_new_session=True)


def choose(app: Application, context: str) -> None:
    """Make a context the current one. `ours` is the application, `theirs` does not exist."""
    contexts = {"ours": {"config": str(app.config_dir)}, "theirs": {"config": "/nonexistent"}}
    path = app.folder / "ringfaust" / "contexts.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"current": context, "contexts": contexts}))


async def test_two_processes_share_the_partitions_and_one_that_is_killed_returns(
    app: Application, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "log"
    settings = app.worker_config.model_dump(
        mode="json", include={"application", "bootstrap_servers", "partitions"}
    )
    app.write("worker.yaml", settings | {"web": {"enabled": True, "port": port}})
    with start(app, log) as program:
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as web:

                async def owners() -> dict[str, str]:
                    """Which process has each partition, as the metrics say."""
                    try:
                        async with web.get("/metrics") as answer:
                            text = await answer.text()
                    except aiohttp.ClientConnectionError:
                        return {}
                    return {
                        sample.labels["partition"]: sample.labels["process"]
                        for family in text_string_to_metric_families(text)
                        if family.name == "ringfaust_recovery_remaining_records"
                        for sample in family.samples
                    }

                async def until_shared() -> None:
                    while sorted((await owners()).values()) != ["0", "1"]:
                        assert program.poll() is None, log.read_text()

                async def until_ready() -> None:
                    while (await web.get("/readyz")).status != 200:
                        assert program.poll() is None, log.read_text()

                await until_shared()
                await until_ready()
                async with client_of(app) as client:
                    await client.send(app.inputs[0], some("a", 5), "q")
                    await client.until_ready("q", "a3", "a4")
                    choose(app, "theirs")
                    (child,) = killable(program.pid, "process-1")
                    os.kill(child, signal.SIGKILL)
                    restarted = (
                        f"process 1 (pid {child}) has ended with status -9 and is started again"
                    )
                    await until(lambda: restarted in log.read_text(), 60, "it is started again")
                    await until_shared()
                    await until_ready()
                    await client.send(app.inputs[0], some("b", 1), "q")
                    await client.until_ready("q", "a4", "b0")
            for number in range(2):
                ready = f"INFO process {number}: ready: "
                await until(lambda ready=ready: ready in log.read_text(), 60, "it is logged")
            program.terminate()
            assert program.wait(60) == 0, log.read_text()
        finally:
            program.kill()
    lines = log.read_text()
    assert "Traceback" not in lines
    assert killable(program.pid, "") == []


def killable(parent: int, argument: str) -> list[int]:
    """The children of a process whose command has the argument."""
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []
    return [
        int(each)
        for each in children
        if argument in Path(f"/proc/{each}/cmdline").read_bytes().decode()
    ]


def test_workers_that_refuse_to_start_are_not_started_again(
    app: Application, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    settings = ("--config", str(app.config_dir), "--bootstrap-servers")
    with start(app, log, *settings, f"127.0.0.1:{free_port()}") as program:
        try:
            assert program.wait(120) == 2, log.read_text()
        finally:
            program.kill()
    assert "no broker answers" in log.read_text().lower().replace("kafka ", "")
    assert "started again" not in log.read_text()
