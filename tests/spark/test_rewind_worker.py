"""Rewind compared with a real worker: its answers to `list` and the contents at those offsets."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from typer.main import get_command

from ringfaust.cli.main import main as cli
from ringfaust.config import QueuesConfig, WorkerConfig, load
from ringfaust.config.topics import create_topics
from ringfaust.core import commands as c
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Role
from ringfaust.spark.kafka import read_topics
from ringfaust.spark.lines import read_lines
from ringfaust.spark.rewind.contents import digest_answer, read_contents
from ringfaust.spark.rewind.moment import read_moment, resolve_moments
from ringfaust.spark.rewind.whatif import AS_IT_WAS, HISTORY, replay_lines
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import WorkerProcess
from ringfaust.testing.scenario.channel import ScenarioRecord, WorkerChannel
from tests.spark.rewind_log import QUEUES, History

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ANSWER_SECONDS = 60.0
LISTS = 50
COMMANDS_BETWEEN = 20


HELD = ("ready", "delivering", "scheduled", "counts")


class Listed(NamedTuple):
    """An answer to `list`."""

    queue: str
    place: str
    """topic/partition/offset of the `list`."""
    answer: dict[str, Any]


class Played(NamedTuple):
    """A worker's configuration and its answers."""

    folder: Path
    worker: WorkerConfig
    queues: QueuesConfig
    listed: list[Listed]


@pytest.fixture(scope="module")
def played(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """One worker, four queues, a thousand commands, and a `list` after every twenty."""
    folder = tmp_path_factory.mktemp("rewind")
    application = f"rewind-{uuid.uuid4().hex[:8]}"
    worker_file = {
        "application": application,
        "bootstrap_servers": broker.bootstrap_servers,
        "partitions": 1,
        "data_dir": str(folder / "data"),
        "clock": "log",
    }
    sent = f"{application}.sent"
    route = {"topic": sent, "queue": f"{{header:{h.QUEUE}}}", "hop": "never"}
    (folder / "worker.yaml").write_text(yaml.safe_dump(worker_file), "utf-8")
    (folder / "queues.yaml").write_text(
        yaml.safe_dump({"routes": [route], "queues": QUEUES}), "utf-8"
    )
    worker, queues = load(folder)
    process = WorkerProcess(folder, folder / "worker.log")
    try:
        listed = asyncio.run(_play(worker, queues, process, sent))
    finally:
        process.stop()
    yield Played(folder, worker, queues, listed)


async def _play(
    worker: WorkerConfig, queues: QueuesConfig, process: WorkerProcess, sent: str
) -> list[Listed]:
    async with open_admin(worker.brokers()) as admin:
        by_ticks = {"message.timestamp.type": "CreateTime"}
        await admin.create([NewTopic(sent, 1, -1, by_ticks)])
    await create_topics(worker, queues)
    control = worker.topic(Role.CONTROL)
    link = WorkerChannel(worker.bootstrap_servers, worker.application, process)
    await link.open()
    try:
        process.start()
        history = History(2026)
        listed: list[Listed] = []
        written = 0
        # An unused queue occurs in no event.
        await link.step([_sent(c.Send(queue, f"first-{queue}", 0), sent) for queue in QUEUES])
        for number in range(LISTS):
            wave = [_record(history, sent, control) for _ in range(COMMANDS_BETWEEN)]
            await link.step(wave)
            # A refused command changes nothing, but its line marks the offset in the control topic.
            await link.step([_control(control, "credit", queue="plain", consumer="nobody", add=1)])
            written += sum(record.topic == control for record in wave) + 1
            queue = sorted(QUEUES)[number % len(QUEUES)]
            reply = f"look-{number}"
            look = _control(control, "list", queue=queue, limit=10_000, reply=reply)
            body = await link.ask(look._replace(reply=reply), ANSWER_SECONDS)
            # The events record what a queue held, not its settings or what waits for it.
            held = {name: body["answer"][name] for name in HELD}
            listed.append(Listed(queue, f"{control}/0/{written}", held))
            written += 1
        return listed
    finally:
        await link.close()


def _record(history: History, sent: str, control: str) -> ScenarioRecord:
    command, _ = history.draw()
    if isinstance(command, c.Sweep):
        return _control(control, "tick", now_ms=history.now_ms)
    if isinstance(command, c.Send):
        return _sent(command, sent)
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(command).__name__).lower()
    fields = {name: value for name, value in command._asdict().items() if value is not None}
    return _control(control, kind, **fields)


def _sent(command: c.Send, topic: str) -> ScenarioRecord:
    fields = {
        h.QUEUE: command.queue,
        h.ID: command.id,
        h.PRIORITY: command.priority,
        h.GROUP: command.group,
        h.DELIVER_AT_MS: command.due_ms or "",
        h.EXPIRES_AT_MS: command.expires_at_ms or "",
    }
    headers = tuple((name, str(value).encode()) for name, value in fields.items() if value != "")
    return ScenarioRecord(topic, None, command.id.encode(), headers)


def _control(control: str, kind: str, **fields: object) -> ScenarioRecord:
    return ScenarioRecord(control, None, json.dumps({"type": kind, **fields}).encode())


@pytest.fixture(scope="module")
def lines(spark: SparkSession, played: Played) -> DataFrame:
    return read_lines(read_topics(spark, played.worker, [played.worker.topic(Role.EVENTS)])).cache()


def test_rewind_equals_the_answers_of_the_worker_at_fifty_offsets(
    lines: DataFrame, played: Played
) -> None:
    asked = [(each.queue, read_moment(each.place)) for each in played.listed]
    moments = resolve_moments(lines, asked, played.worker.topic(Role.HOP))
    found = read_contents(
        lines, [(each.queue, at) for each, at in zip(played.listed, moments, strict=True)]
    )
    for listed, contents in zip(played.listed, found, strict=True):
        (one,) = contents
        assert one.answer() == listed.answer
        assert one.digest() == digest_answer(listed.answer)
    assert len({digest_answer(each.answer) for each in played.listed}) > LISTS * 3 // 4


def test_a_replay_with_the_original_settings_evicts_what_the_worker_evicted(
    lines: DataFrame, played: Played
) -> None:
    """All queues at once, each in its own task."""
    departures = replay_lines(lines, lines, played.queues.catalog(), {})
    rows = departures.filter("event = 'evicted'").collect()
    evicted = {
        variant: sorted(
            (row.queue, row.step, row.sequence, row.id, row.reason)
            for row in rows
            if row.variant == variant
        )
        for variant in (HISTORY, AS_IT_WAS)
    }
    assert evicted[AS_IT_WAS] == evicted[HISTORY]
    assert {queue for queue, *_ in evicted[HISTORY]} == QUEUES.keys()


def test_the_command_line_answers(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    last = [each for each in played.listed if each.queue == "mixed"][-1]
    config = ["--config", str(played.folder), "--queue", "mixed"]

    def asked(*options: str) -> str:
        get_command(cli)(["spark", "rewind", *config, *options], standalone_mode=False)
        return capsys.readouterr().out

    at_last = asked("--offset", last.place, "--json")
    (contents,) = json.loads(at_last)["contents"]
    assert contents["digest"] == digest_answer(last.answer)
    assert [each["id"] for each in contents["ready"]] == last.answer["ready"]
    answer = json.loads(asked("--ring-size", "2,-1", "--limit", "3", "--json"))
    was, again, two, none = answer["what_if"]
    assert (was["variant"], again["variant"]) == (HISTORY, AS_IT_WAS)
    assert again["left"]["evicted"] == was["left"]["evicted"] == again["same"]
    assert (again["spared"], again["more"], again["differing"]) == (0, 0, [])
    assert (again["first"], again["last"]) == (was["first"], was["last"])
    assert two["left"]["evicted"] == two["same"] + two["more"] > none["left"].get("evicted", 0)
    assert len(two["differing"]) == 3
    wrong = ["spark", "rewind", *config, "--step", "0/1", "--lake", "/nowhere"]
    assert get_command(cli)(wrong, standalone_mode=False) == 2
    assert "no lake at /nowhere" in capsys.readouterr().err
    first = next(each for each in played.listed if each.queue == "mixed")
    other = next(name for name in QUEUES if name != "mixed")
    diff = ["--offset", first.place, "--to", last.place]
    for moment, alone in ((["--offset", last.place], at_last), (diff, asked(*diff, "--json"))):
        both = list(map(json.loads, asked("--queue", other, *moment, "--json").splitlines()))
        assert [each["queue"] for each in both] == ["mixed", other]
        assert both[0] == json.loads(alone)
        assert both[1] != both[0]
    output = asked(*diff)
    assert "to step 0/" in output and "passed" in output and "evicted" in output
