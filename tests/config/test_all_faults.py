"""`config check` reports every mistake of both files at once, and warns of an unknown order."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.config.routes import RouteConfig, arrival_order

QUEUES = """\
routes:
  - {topic: in, queue: q}
  - {topic: in, queue: q}
  - {topic: other, queue: nowhere}
queues:
  q: {ring_size: none, evict: newest, colour: red}
"""


def check(folder: Path, queues: str, worker: str) -> tuple[int, str]:
    (folder / "queues.yaml").write_text(queues)
    (folder / "worker.yaml").write_text(worker)
    result = CliRunner().invoke(main, ["config", "check", "--config", str(folder)])
    return result.exit_code, " ".join(result.output.split())


def test_all_faults_of_both_files_are_reported_at_once(tmp_path: Path) -> None:
    status, text = check(tmp_path, QUEUES, "partitions: many\ntick_ms: 0\n")
    assert status == 2
    for place in ("partitions", "tick_ms", "queues.q.ring_size", "queues.q.evict"):
        assert f"{place}: " in text
    assert "line 6, queues.q.colour: unknown setting" in text
    assert "line 6, queues.q.ring_size: 'none' is not allowed: " in text


def test_all_faults_between_entries_are_reported_at_once(tmp_path: Path) -> None:
    queues = QUEUES.replace("{ring_size: none, evict: newest, colour: red}", "{}")
    status, text = check(tmp_path, queues, "{application: a}\n")
    assert status == 2
    assert "line 3, routes.1.topic: topic 'in' has two routes" in text
    assert "line 4, routes.2.queue: 'nowhere' is not declared" in text


def test_an_order_by_arrival_is_a_warning(tmp_path: Path) -> None:
    queues = "routes: [{topic: in, queue: q}, {topic: by, queue: 'by.{key}'}]\n"
    queues += "queues: {q: {}, by.*: {}}\n"
    status, text = check(tmp_path, queues, "partitions: 3\n")
    assert status == 0
    assert text.count("warning") == 1
    assert "queue q gets the records of 3 partitions of topic in" in text
    assert "create the topic with 1 partition" in text
    status, text = check(tmp_path, queues, "partitions: 1\n")
    assert (status, "warning" in text) == (0, False)


def test_the_order_is_known_if_a_queue_has_one_partition_or_one_key() -> None:
    constant = RouteConfig(topic="in", queue="all.{topic}")
    assert "queue all.in gets" in arrival_order(constant, 2)
    assert arrival_order(constant, 1) == ""
    assert arrival_order(RouteConfig(topic="in", queue="by.{key}"), 2) == ""
