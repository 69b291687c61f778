"""What a worker's log tells, and what it leaves out."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from ringfaust import compiled
from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.logs import RateLimitFilter
from ringfaust.processor.outbox import TIMEOUT, LogEntry
from ringfaust.worker.app import log_start
from ringfaust.worker.logs import JsonFormatter, logging_config
from ringfaust.worker.observe import health
from ringfaust.worker.observe.health import LOST_AFTER_S, Health
from ringfaust.worker.observe.memory import MemoryBudget
from ringfaust.worker.partition.command_log import CommandLog
from ringfaust.worker.partition.task import FENCED, RECOVERING


def record(message: str, name: str = "ringfaust.worker.app", **more: Any) -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, "", 0, message, None, more.get("exc_info"))


def task(number: int, trouble: str = "", left: int = 0) -> Any:
    work = SimpleNamespace(
        name=f"partition {number}", number=number, is_caught_up=left == 0,
        remaining_records=left, blocked="",
    )  # fmt: skip
    return SimpleNamespace(trouble=trouble, work=work)


class World:
    """Tasks, and brokers that are silent for as long as the test says."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []
        self.replaying: dict[int, int] = {}
        self.silent_s = 0.0
        self.unconfirmed_s = 0.0
        self.memory = MemoryBudget(1 << 40)
        self.has_joined = False
        self.late_standbys: dict[int, int | None] = {}
        self.unreadable: list[TP] = []
        self.health = Health(
            lambda: self.tasks,
            self.replaying,
            lambda: self.silent_s,
            lambda: self.unconfirmed_s,
            self.memory,
            has_joined=lambda: self.has_joined,
            late_standbys=lambda: self.late_standbys,
            unreadable=lambda: self.unreadable,
        )


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Of this package only: at a garbage collection asyncio may tell of what other tests left."""
    caplog.set_level(logging.INFO, "ringfaust")
    with caplog.filtering(logging.Filter("ringfaust")):
        yield caplog


@pytest.mark.parametrize("remedy", ["", "install a C compiler"])
def test_the_first_lines_tell_how_the_engine_runs_and_what_would_make_it_faster(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, remedy: str
) -> None:
    kind = "pure Python: slower" if remedy else "compiled"
    monkeypatch.setattr(compiled, "KIND", kind)
    monkeypatch.setattr(compiled, "REMEDY", remedy)
    log_start(WorkerConfig())
    first, *more = lines.messages
    assert f" ({kind}): brokers " in first
    assert more == ([f"{kind}: {remedy}"] if remedy else [])


def test_a_worker_whose_partition_reads_only_commands_is_not_ready() -> None:
    world = World()
    world.tasks = [task(0), task(1)]
    world.tasks[1].work.blocked = "it reads nothing but commands"
    assert world.health.problems() == ["partition 1: it reads nothing but commands"]


def test_a_worker_is_ready_when_every_assigned_partition_is_caught_up(
    lines: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.health.look(0.0)
    world.tasks = [task(0, RECOVERING), task(1, left=1_200)]
    world.replaying[0] = 4_000
    world.health.look(1.0)  # too soon for another line
    world.health.look(10.0)
    world.health.look(20.0)  # nothing has changed
    world.tasks = [task(0), task(1)]
    world.health.look(20.5)
    world.health.look(30.0)
    assert lines.messages == [
        "not ready: the group has not assigned anything to this worker yet",
        "not ready: partition 0: recovering (4,000 records of its changelog left); "
        "partition 1: recovering (1,200 records of its inputs left)",
        "ready: partition 0; partition 1",
    ]


def test_a_worker_whose_standby_has_not_caught_up_is_not_ready() -> None:
    """A rolling update would stop the only worker that has the state (R127)."""
    world = World()
    world.tasks = [task(0)]
    world.late_standbys = {1: None, 2: 12_000}
    assert world.health.problems() == [
        "the standby of partition 1 is being opened",
        "the standby of partition 2 is 12,000 records behind",
    ]
    world.late_standbys = {}
    assert world.health.problems() == []


def test_an_input_that_no_broker_serves_is_told() -> None:
    """Its lag stays as it was, so nothing else would show it."""
    world = World()
    world.tasks = [task(0)]
    world.unreadable = [TP("in", 3), TP("control", 0)]
    assert world.health.problems() == [
        "control, partition 0: no leader answers",
        "in, partition 3: no leader answers",
    ]
    world.silent_s = LOST_AFTER_S + 1
    assert world.health.problems() == ["the brokers do not answer"]


def test_a_spare_worker_is_ready_once_the_group_has_answered(
    lines: pytest.LogCaptureFixture,
) -> None:
    """R124: a rolling update waits until each worker is ready, also one without partitions."""
    world = World()
    world.health.look(0.0)
    world.has_joined = True
    world.health.look(10.0)
    assert world.health.problems() == []
    world.unconfirmed_s = LOST_AFTER_S + 1
    world.health.look(20.0)
    assert lines.messages == [
        "not ready: the group has not assigned anything to this worker yet",
        "ready: no partition is assigned to this worker",
        "not ready: the group's coordinator does not answer",
    ]


def test_a_worker_that_was_ready_says_at_once_that_it_is_not() -> None:
    world = World()
    world.tasks = [task(0)]
    world.health.look(0.0)
    assert world.health.problems() == []
    world.tasks = [task(0, FENCED)]
    assert world.health.problems() == [f"partition 0: {FENCED}"]


def test_lost_brokers_and_their_return_are_reported_once(lines: pytest.LogCaptureFixture) -> None:
    world = World()
    world.tasks = [task(0)]
    for second, silent_s in enumerate([0.0, LOST_AFTER_S + 1, LOST_AFTER_S + 2, 0.1, 0.2]):
        world.silent_s = silent_s
        world.health.look(float(second))
    assert lines.messages == [
        "ready: partition 0",
        "the brokers have not answered for 6 s",
        "not ready: the brokers do not answer",
        "the brokers answer again",
        "ready: partition 0",
    ]
    assert health.LOST_AFTER_S > 0


def test_commands_and_refusals_are_logged_and_a_flood_is_counted(
    lines: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    told = CommandLog(3, lambda: now_s)
    told.tell([LogEntry("purge", "orders"), LogEntry("ack", "q", "stale_delivery", "it has ended")])
    assert lines.messages == [
        "partition 3: operator: purge of 'orders'",
        "partition 3: refused ack of 'q': stale_delivery: it has ended",
    ]
    lines.clear()
    told.tell([LogEntry("remove", "q")] * 300)
    assert len(lines.messages) == 5
    now_s = 60.0
    told.tell([LogEntry("remove", "q")])
    assert lines.messages[5:] == ["partition 3: operator: remove of 'q' (295 more before)"]


def test_a_consumer_that_timed_out_is_logged(lines: pytest.LogCaptureFixture) -> None:
    CommandLog(3, lambda: 0.0).tell([LogEntry(TIMEOUT, "orders", text="worker-7")])
    assert lines.messages == [
        "partition 3: detached consumer 'worker-7' of 'orders': silent for longer than its "
        "consumer_timeout_ms; what it held is released"
    ]


def test_too_few_replicas_at_first_are_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr("ringfaust.logs.time.monotonic", lambda: now_s)
    wanted = RateLimitFilter()
    few = record("Got error: NotEnoughReplicasError", "aiokafka.producer.sender")
    assert not wanted.filter(few)
    now_s += 9
    assert not wanted.filter(few)
    now_s += 2
    assert wanted.filter(few)  # it lasts
    now_s += 60
    assert not wanted.filter(few)  # another new topic
    assert wanted.filter(record("Got error: another", "aiokafka.producer.sender"))


def test_an_error_that_stops_the_worker_is_its_text() -> None:
    """Faust logs it outside of the `except` clause, which printed "NoneType: None" below it."""
    crash = logging.LogRecord(
        "faust", logging.ERROR, "", 0, "Crashed reason=%r", (RingfaustError("no room"),),
        (None, None, None),
    )  # fmt: skip
    assert RateLimitFilter().filter(crash)
    assert logging.Formatter().format(crash) == "no room"


def test_a_line_in_json_is_one_object() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        line = JsonFormatter().format(record("two\nlines", exc_info=sys.exc_info()))
    found = json.loads(line)
    assert "\n" not in line
    assert found["error"].endswith("ValueError: no")
    assert (found["level"], found["message"]) == ("warning", "two\nlines")
    assert found["time"].endswith("+00:00")


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_format_of_the_lines_is_configured(form: str) -> None:
    config = logging_config("info", form)
    assert config["handlers"]["stderr"]["formatter"] == form
    assert form in config["formatters"]
