"""`ringfaust doctor` on an application with deliberate faults, and on one without."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner

from ringfaust.cli import doctor as checks
from ringfaust.cli.doctor import disk, engine, memory
from ringfaust.cli.judge import judge_engines, judge_settings, judge_workers
from ringfaust.cli.main import main
from ringfaust.cli.partition import listed
from ringfaust.client import StoppedPartition, WorkerStatus
from ringfaust.config import WorkerConfig
from ringfaust.core.catalog import Catalog
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application

CONFIG = WorkerConfig(partitions=2)
STOPPED = StoppedPartition(
    partition="0", at="in/0/7", reason="a bug", remedy="correct it and retry", since_ms=500
)
NO_STANDBY = (
    "has no standby that is caught up: if its worker dies, the next one must read the changelog "
    "first"
)


def status(**more: Any) -> WorkerStatus:
    about: dict[str, Any] = {
        "worker": "w", "time_ms": 1_000, "started_ms": 0, "host": "h", "version": "1",
        "engine": "compiled", "is_ready": True, "problems": (), "partitions": (0, 1), "lag": {},
        "recovering": {}, "clock_skew_ms": None, "queues": 3, "published": 3,
    }  # fmt: skip
    return WorkerStatus(**about | more)


def test_a_partition_is_served_by_who_spoke_last() -> None:
    """A worker that was killed a moment ago does not hide that its partition has stopped."""
    killed = status(worker="z", partitions=(0,), time_ms=1_000)
    heir = status(worker="a", partitions=(), stopped=(STOPPED,), time_ms=2_000)
    [found] = listed([heir, killed], 1, 2_500)
    assert (found.state, found.worker, found.at) == ("stopped", "a", "in/0/7")


def test_a_file_of_security_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "worker.yaml").write_text("security: {protocol: SSL, ca_file: /gone.pem}\n")
    (tmp_path / "queues.yaml").write_text("queues: {orders: {}}\n")
    place = ["--config", str(tmp_path), "--json"]
    found = json.loads(CliRunner().invoke(main, ["doctor", *place]).stdout)
    said = "worker.yaml cannot be used: security.ca_file: /gone.pem: No such file or directory"
    assert [each["text"] for each in found if each["check"] == "brokers"] == [said]
    checked = json.loads(CliRunner().invoke(main, ["config", "check", *place]).stdout)
    assert checked["log"] == f"not compared with the log: {said}"


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([status()], [("ok", "1 ready, version 1")]),
        ([], [("warn", "none runs")]),
        ([status(partitions=(1,))], [("warn", "nobody serves partition 0")]),
        ([status(is_ready=False, problems=("slow",))], [("warn", "w is not ready: slow")]),
        (
            [status(is_ready=False, partitions=(1,), stopped=(STOPPED,))],
            [("fail", "partition 0 has stopped at in/0/7: a bug")],
        ),
        ([status(clock_skew_ms=90_000)], [("fail", "the clock of w differs by 90,000 ms")]),
        (
            [status(standbys={0: 0}), status(worker="v", version="2", standbys={1: 10_000})],
            [("warn", "workers run different versions: 1, 2")],
        ),
        (
            [
                status(level={0: 2, 1: 2}, levels=(1, 2), standbys={0: 0, 1: 0}),
                status(worker="v", partitions=()),
            ],
            [("fail", "v (1) is too old: level 2 is in use (R129)")],
        ),
        ([status(level={0: 1, 1: 1})], [("ok", "1 ready, version 1, level 1")]),
        (
            [status(), status(worker="v", partitions=(), standbys={0: 10_001, 1: None})],
            [("warn", f"partition 0-1 {NO_STANDBY}")],
        ),
        (
            [status(), status(worker="v", partitions=(), standbys={1: 0})],
            [("warn", f"partition 0 {NO_STANDBY}")],
        ),
        (
            [status(standbys={1: 0}), status(worker="v", partitions=(), standbys={0: 9})],
            [("ok", "2 ready, version 1")],
        ),
        (
            [status(), status(worker="v", time_ms=-99_000)],
            [("warn", "v has been silent for 101 s")],
        ),
    ],
)
def test_workers_are_judged_by_what_they_publish(
    workers: list[WorkerStatus], expected: list[tuple[str, str]]
) -> None:
    found = judge_workers(workers, CONFIG, 2_000)
    assert [(each.level, each.text) for each in found] == expected
    assert all(each.remedy for each in found if each.level != "ok")


def test_who_wants_no_standbys_is_not_warned() -> None:
    config = WorkerConfig(partitions=2, standby=0)
    (found,) = judge_workers([status(), status(worker="v", partitions=())], config, 2_000)
    assert found.level == "ok"


@pytest.mark.parametrize(
    ("free", "level"), [(500 << 30, "ok"), (5 << 30, "warn"), (1 << 30, "warn"), (1 << 20, "fail")]
)
def test_a_full_disk_is_found(
    free: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=1 << 40, used=0, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (usage.total, 0, usage.free))
    found = disk(tmp_path / "not" / "there")
    assert (found.check, found.level) == ("disk", level)


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, "ok"),
        ({"memory_bytes": 1 << 30}, "warn"),
        ({"partitions": 16}, "warn"),
        ({"cache_bytes": 700 << 20}, "warn"),
    ],
)
def test_a_memory_budget_that_does_not_fit_is_found(
    settings: dict[str, Any], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "machine_bytes", lambda: 1 << 30)
    defaults = {"memory_bytes": 768 << 20, "cache_bytes": 256 << 20}
    found = memory(WorkerConfig(**{**defaults, **settings}))
    assert (found.check, found.level) == ("memory", level)
    assert found.remedy or level == "ok"


def test_a_folder_that_may_not_be_looked_at_ends_no_other_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd keeps the state of a service where nobody else looks."""

    def refused(_: object) -> None:
        raise PermissionError(13, "Permission denied", "/var/lib/ringfaust")

    monkeypatch.setattr(shutil, "disk_usage", refused)
    found = disk(tmp_path)
    assert (found.check, found.level) == ("disk", "warn")
    assert found.text.endswith("cannot be looked at: Permission denied")


@pytest.mark.parametrize(("remedy", "level"), [("", "ok"), ("install a C compiler", "warn")])
def test_an_engine_that_is_not_compiled_is_found(
    remedy: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.compiled, "REMEDY", remedy)
    found = engine()
    assert (found.check, found.level, found.remedy) == ("engine", level, remedy)


def test_a_worker_elsewhere_that_is_not_compiled_is_found() -> None:
    slow = status(worker="slow", engine="pure Python: slower, because RINGFAUST_PURE is set")
    gone = status(worker="gone", engine="pure Python: slower", time_ms=-99_000)
    (found,) = judge_engines([status(), slow, gone], 2_000)
    assert (found.check, found.level) == ("engine", "warn")
    assert found.text == f"that of slow is {slow.engine}"


def doctor(app: Application, status: int, *more: str) -> list[dict[str, str]]:
    result = CliRunner().invoke(main, ["doctor", "--config", str(app.config_dir), "--json", *more])
    assert result.exit_code == status, (result.output, result.exception)
    return list(json.loads(result.stdout))


@pytest.mark.kafka
def test_faults_are_found_with_their_remedies(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = {"routes": [{"topic": f"in-{tmp_path.name}", "queue": "q"}], "queues": {"q": {}}}
    app = Application(tmp_path / "app", broker.bootstrap_servers, queues, partitions=2)
    wrong = [
        NewTopic(app.topic("dead"), 3, -1, {}),
        NewTopic(app.topic("changelog"), 2, -1, {"cleanup.policy": "delete"}),
        NewTopic(app.topic("status"), 2, -1, {}),
    ]
    asyncio.run(_create(app, wrong))
    found = doctor(app, 1)
    topics = [each for each in found if each["check"] == "topics"]
    texts = " ".join(each["text"] for each in topics)
    assert f"Topic {app.topic('dead')} has 3 partitions" in texts
    assert f"Topic {app.topic('changelog')} has cleanup.policy=delete" in texts
    assert f"Topic {app.topic('control')} does not exist" in texts
    levels = {each["text"].split()[1]: each["level"] for each in topics}
    assert levels[app.topic("status")] == "warn"
    assert levels[app.topic("dead")] == "fail"
    assert all(each["remedy"] for each in found if each["level"] != "ok")

    good = Application(tmp_path / "good", broker.bootstrap_servers, queues, partitions=2)
    good.create_topics()
    by_check = {each["check"]: each for each in doctor(good, 0)}
    assert by_check.keys() == {
        "disk", "memory", "engine", "brokers", "acls", "topics", "group", "clock", "lag",
        "transactions", "workers", "queues", "settings",
    }  # fmt: skip
    warned = {name for name, each in by_check.items() if each["level"] == "warn"}
    assert warned - {"disk", "engine"} == {
        "group", "workers",  # none runs
    }  # fmt: skip
    assert "no authorizer" in by_check["acls"]["text"]
    monkeypatch.setattr(checks, "HANGING_MS", -60_000)
    hanging = asyncio.run(_with_open_transaction(good))
    (found_open,) = (each for each in hanging if each["check"] == "transactions")
    assert found_open["level"] == "fail"
    assert f"in-{tmp_path.name}/0 has a transaction open" in found_open["text"]
    assert "find-hanging" in found_open["remedy"]


async def _create(app: Application, topics: list[NewTopic]) -> None:
    async with open_admin(app.worker_config.brokers()) as admin:
        await admin.create(topics)


async def _with_open_transaction(app: Application) -> list[dict[str, str]]:
    producer = AIOKafkaProducer(bootstrap_servers=app.servers, transactional_id=app.topic("open"))
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait(app.inputs[0], b"x", partition=0)
        found = await asyncio.to_thread(doctor, app, 1)
        await producer.abort_transaction()
    return found


def test_brokers_that_do_not_answer_are_one_finding(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--bootstrap-servers", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "fail  brokers" in result.stdout
    assert "check bootstrap_servers and security" in result.stdout
    assert "Traceback" not in result.output


def test_a_broker_that_hangs_is_named_within_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        began_s = time.monotonic()
        result = CliRunner().invoke(main, ["doctor", "--bootstrap-servers", address])
        assert time.monotonic() - began_s < 10
    assert result.exit_code == 1
    assert f"{address} accepts connections, but does not answer" in result.stdout


def test_settings_that_differ_from_the_file_are_named() -> None:
    catalog = Catalog({"orders": {"ring_size": 3}, "by.#": {}}, {})
    (fine,) = judge_settings({"orders": {"ring_size": 3}, "by.eu": {}}, catalog)
    assert fine.level == "ok"
    live = {"orders": {"ring_size": 5}, "by.eu": {"consumer_timeout": 5_000}}
    (found,) = judge_settings(live, catalog)
    assert found.level == "warn"
    assert "'orders': ring_size is 5, the configuration says 3" in found.text
    assert "'by.eu': consumer_timeout_ms is 5000, the configuration says" in found.text
    assert "`queue reset` takes these back" in found.remedy
    (back,) = judge_settings({"orders": {}}, catalog)
    assert "'orders': ring_size is -1, the configuration says 3" in back.text
