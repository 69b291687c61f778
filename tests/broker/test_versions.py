"""Workers of this version and of the last release form one group, both ways (R129)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from ringfaust import __version__
from ringfaust.core import levels
from ringfaust.protocol.revisions import RaisedLevel, level_row
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import run
from tests.chaos.harness import ROOT, Application, Worker, until
from tests.chaos.load import LONGEST_MS, QUEUES, Load
from tests.chaos.release import last_release
from tests.chaos.verdict import judge_stores, judge_topics, wait_until_read

pytestmark = pytest.mark.kafka

PARTITIONS = 4
DEADLINE_S = 90
LOAD_S = 300
"""For how long workers of both versions take turns."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The last release before this version, and a Python that has its wheel."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git: nothing is known of earlier releases")
    return last_release(tmp_path_factory.mktemp("released"))


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path, topic: str) -> Iterator[Application]:
    content = {**QUEUES, "routes": [{"topic": topic, "queue": "ring.{key}"}]}
    servers = broker.bootstrap_servers
    with Application(tmp_path / "app", servers, content, partitions=PARTITIONS) as app:
        yield app


async def status(app: Application, *, expect: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await run(app, "upgrade", "status", "--json", expect=expect))
    return found


async def until_status(app: Application, versions: list[str], *, expect: int) -> dict[str, Any]:
    """Wait until exactly these versions run, and every partition is served."""
    for _ in range(60):
        done = await asyncio.to_thread(
            app.run_inside, "upgrade", "status", "--json", "--config", app.config_dir
        )
        found: dict[str, Any] = json.loads(done.stdout)
        served = sum(len(each["partitions"]) for each in found["workers"])
        if sorted(each["version"] for each in found["workers"]) == sorted(versions) and (
            served == PARTITIONS or __version__ not in versions
        ):
            assert done.returncode == expect, found
            return found
        await asyncio.sleep(1)
    raise AssertionError(found)


async def goes_on(load: Load) -> None:
    """Wait until consumers have settled more."""
    settled = load.settled
    await until(lambda: load.settled > settled + 200, DEADLINE_S, "consumers still settle")


async def change(app: Application, worker: Worker, python: Path | None) -> None:
    """Stop a worker, and start it with another version on the same disk."""
    assert await app.stop(worker) == []
    worker.python = python
    worker.start()
    await until(worker.has_connected, DEADLINE_S, f"{worker.name} runs")


async def until_ready(worker: Worker) -> None:
    await until(worker.has_connected, DEADLINE_S, f"{worker.name} runs")


def started(app: Application, python: Path | None) -> Worker:
    """A new worker, of another version if a Python is given."""
    worker = Worker(app, len(app.workers))
    worker.python = python
    app.workers.append(worker)
    worker.start()
    return worker


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_upgrade_return_upgrade_and_finish_under_load(
    app: Application, topic: str, released: tuple[str, Path]
) -> None:
    version, old = released
    one = started(app, old)
    await until_ready(one)
    two = started(app, old)
    await until_ready(two)
    load = Load(app, topic, seed=7, rate=100)
    await load.start()
    await goes_on(load)

    await run_side_by_side(app, load, version, one, two)
    began_s = time.monotonic()
    while time.monotonic() - began_s < LOAD_S:
        for worker, python in (
            (two, None), (one, old), (two, old), (two, None), (one, None),
        ):  # fmt: skip
            await change(app, worker, python)
            await goes_on(load)
    found = await until_status(app, [__version__] * 2, expect=1)
    assert (found["level"], found["too_old"], found["behind"]) == (1, [], {})
    await finish(app, version)
    await goes_on(load)
    await keep_out(app, load, released, one, two)
    await goes_on(load)

    await load.stop()
    await wait_until_read(app, DEADLINE_S)
    await asyncio.sleep(LONGEST_MS / 1000 + 0.5)  # every delay and time to live has passed
    assert await judge_topics(app) == []
    for worker in (one, two):
        assert await app.stop(worker) == []
    assert await judge_stores(app) == []


async def run_side_by_side(
    app: Application, load: Load, version: str, one: Worker, two: Worker
) -> None:
    """Upgrade the first, and have each take over what the other version has written."""
    await change(app, one, None)
    await goes_on(load)
    found = await until_status(app, [version, __version__], expect=1)
    assert (found["level"], found["newest"]) == (1, levels.NEWEST)
    assert [each.endswith(f"({version})") for each in found["too_old"]] == [True]
    refused = await run(app, "upgrade", "finish", "--yes", expect=2)
    assert found["too_old"][0] in refused
    assert (await status(app, expect=1))["level"] == 1
    for worker in (two, one):
        worker.kill()
        await goes_on(load)
        worker.start()
        await until_ready(worker)
        await goes_on(load)


async def finish(app: Application, version: str) -> None:
    """Finish the upgrade. The row of a worker that was killed counts for a while."""
    for _ in range(30):
        done = await asyncio.to_thread(
            app.run, "upgrade", "finish", "--yes", "--json", "--config", app.config_dir
        )
        if done.returncode == 0:
            break
        assert version in done.stderr, done.stderr
        await asyncio.sleep(1)
    assert json.loads(done.stdout) == {
        "level": levels.NEWEST, "partitions": [*range(PARTITIONS)], "waiting": [],
    }  # fmt: skip


async def keep_out(
    app: Application, load: Load, released: tuple[str, Path], one: Worker, two: Worker
) -> None:
    """The old version gets nothing beside others, and alone it changes nothing."""
    version, old = released
    late = started(app, old)
    await until(
        lambda: any("is too old and gets no partitions" in each.log_text() for each in (one, two)),
        DEADLINE_S, "the leader says so",
    )  # fmt: skip
    await goes_on(load)
    found = await until_status(app, [version, __version__, __version__], expect=1)
    (its,) = (each for each in found["workers"] if each["version"] == version)
    assert its["partitions"] == {}, found
    assert {*found["too_old"]} == {f"{its['worker']} ({version})"}
    assert f"is too old: level {levels.NEWEST} is in use" in await run(app, "doctor", expect=1)
    for worker in (one, two):
        assert await app.stop(worker) == []
    await until(
        lambda: late.log_text().count("a stored CLOCK row has version 2") >= PARTITIONS,
        DEADLINE_S, "it refuses every partition",
    )  # fmt: skip
    late.kill()
    app.workers.remove(late)
    for worker in (one, two):
        worker.start()
        await until_ready(worker)


async def test_a_worker_that_is_too_old_is_refused_by_name_and_touches_nothing(
    app: Application,
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        row = level_row(app.topic("configuration"), RaisedLevel(levels.NEWEST + 1, "ann", 1))
        await producer.send_and_wait(row.topic, row.value, row.key, row.partition)
    refused = await run(app, "worker", expect=2, in_a_process=True)
    name = app.worker_config.application
    assert f"ringfaust {__version__} on " in refused
    assert f"is too old: application {name} uses feature level {levels.NEWEST + 1}" in refused
    assert not [*app.folder.glob("data*/partition-*")]
    assert "is too old" in await run(app, "doctor", expect=1)


async def test_another_queues_yaml_comes_together_with_this_version(
    app: Application, topic: str, released: tuple[str, Path]
) -> None:
    """R128: as the chart does it. `apply` of this version asks workers of the last one, which have
    never had any, and then they are replaced one by one and read the new file."""
    _, old = released
    workers = [started(app, old), started(app, old)]
    for worker in workers:
        await until_ready(worker)
    content = {**QUEUES, "routes": [{"topic": topic, "queue": "ring.{key}"}]}
    app.write("queues.yaml", {**content, "queues": {**QUEUES["queues"], "late": {"ring_size": 2}}})
    assert "revision 1 is in effect in partitions 0-3" in await run(
        app, "apply", "--yes", in_a_process=True
    )
    for worker in workers:
        await change(app, worker, None)
    await until_status(app, [__version__] * 2, expect=1)
    assert "nothing differs from revision 1" in await run(app, "diff")
