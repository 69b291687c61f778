"""`ringfaust init`: from five answers, or none, to a configuration that works."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfaust.cli import init
from ringfaust.cli.main import main
from ringfaust.config import load
from ringfaust.config.starter import StarterAnswers, starter_files, write_starter
from tests.chaos.harness import command, environment

DEADLINE_S = 60


def answers(**changes: object) -> StarterAnswers:
    given = {
        "servers": "127.0.0.1:9092", "application": "shop", "topics": ("orders", "a: b"),
        "per_key": False, "ring_size": 7,
    }  # fmt: skip
    return StarterAnswers(**{**given, "topics": ("orders", "prices"), **changes})  # type: ignore[arg-type]


def test_the_files_have_comments_and_are_valid(tmp_path: Path) -> None:
    files = starter_files(answers(), {"orders": 6})
    write_starter(files, tmp_path)
    worker, queues = load(tmp_path)
    assert (worker.application, worker.partitions) == ("shop", 4)
    assert [(route.topic, route.queue) for route in queues.routes] == [
        ("orders", "orders"), ("prices", "prices"),
    ]  # fmt: skip
    assert queues.catalog().spec("orders", {}).ring_size == 7
    assert all("# " in text for text in files.values())


def test_a_ring_for_each_key_needs_no_hop_where_the_partitions_agree(tmp_path: Path) -> None:
    partitions = {"orders": 6, "prices": 3, "more": 6}
    topics = ("orders", "prices", "more")
    write_starter(starter_files(answers(per_key=True, topics=topics), partitions), tmp_path)
    worker, queues = load(tmp_path)
    assert worker.partitions == 6
    assert [route.needs_hop(6) for route in queues.routes] == [False, True, False]
    assert queues.catalog().spec("prices.any.key", {}).ring_size == 7


@pytest.mark.parametrize("name", ["queues.yaml", "worker.yaml"])
def test_existing_files_stay(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    done = CliRunner().invoke(main, ["init", str(tmp_path), "--yes"])
    assert done.exit_code == 2 and "exists already" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_without_brokers_nothing_is_written(tmp_path: Path) -> None:
    arguments = ["init", str(tmp_path / "new"), "--yes", "--bootstrap-servers", "127.0.0.1:9"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2 and "No Kafka broker answers" in done.stderr
    assert not (tmp_path / "new").exists()


def test_topics_that_no_worker_can_use_are_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def topics(_: object) -> dict[str, int]:
        return {}

    monkeypatch.setattr(init, "_topics", topics)
    monkeypatch.setattr(init, "create", lambda *_: 1)
    done = CliRunner().invoke(main, ["init", str(tmp_path / "new"), "--yes"])
    assert (done.exit_code, "next: ringfaust worker" in done.stdout) == (1, False)


def test_without_a_terminal_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        command("init", tmp_path / "new"), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 2 and "there is no terminal" in done.stderr
