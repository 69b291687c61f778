"""Producers' topics as they are found elsewhere: odd partitioners, odd clocks, compaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from ringfaust.kafka.admin import connected_admin
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import client_of
from tests.chaos.harness import Application, until

pytestmark = pytest.mark.kafka

KEY = "moss"
HOME = partition_of(KEY, 4)
OTHER = (HOME + 2) % 4
NAMES = ("keyed", "clock", "compacted", "hopping")
"""Of the topics, and of their queues. Each test uses one of them."""
CREATED = {
    # A broker may delete at once what is dated 1970.
    "clock": {"message.timestamp.type": "CreateTime", "retention.ms": "-1"},
    "compacted": {"cleanup.policy": "compact"},
}
"""The settings of topics that others have created."""


@pytest.fixture(scope="module")
def app(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application with a worker."""
    folder = tmp_path_factory.mktemp("odd")
    routes: list[dict[str, Any]] = [
        {"topic": f"{name}-{folder.name}", "queue": f"{name}.{{key}}"} for name in NAMES
    ]
    routes[-1]["hop"] = "always"
    queues = {"routes": routes, "queues": {f"{name}.*": {"ring_size": -1} for name in NAMES}}
    app = Application(folder / "app", broker.bootstrap_servers, queues, partitions=4)
    with ThreadPoolExecutor(1) as pool:  # this thread may have a running event loop
        pool.submit(asyncio.run, create_inputs(app)).result()
    app.create_topics()
    app.new_worker()
    yield app
    app.end()


async def create_inputs(app: Application) -> None:
    """Create producers' topics, as others have done."""
    async with connected_admin({"bootstrap_servers": app.servers}) as admin:
        await admin.create_topics(
            [NewTopic(topic(app, name), 4, 1, topic_configs=more) for name, more in CREATED.items()]
        )


def topic(app: Application, name: str) -> str:
    return app.inputs[NAMES.index(name)]


def told(app: Application, *arguments: str) -> str:
    done = app.run_inside(*arguments, "--config", app.config_dir)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


async def until_ready(app: Application, queue: str, partition: int, count: int) -> None:
    """Wait until so many messages of a queue are ready in a partition."""
    ready: list[str] = []
    async with client_of(app) as client:
        try:
            async with asyncio.timeout(60):
                while len(ready := await client.ready(queue, partition)) != count:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            logs = "\n".join(worker.log_text() for worker in app.workers)
            raise AssertionError(f"ready at the end: {ready}\n{logs}") from None


async def test_both_queues_of_a_key_in_two_partitions_are_shown(app: Application) -> None:
    """Case C1 of issue 38: one was shown, and the other was ready for ever."""
    (worker,) = app.workers
    keyed, queue = topic(app, "keyed"), f"keyed.{KEY}"
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        for partition in [HOME, HOME, HOME, OTHER, OTHER]:
            await producer.send_and_wait(keyed, b"x", KEY.encode(), partition=partition)
    await until(lambda: "began in partition" in worker.log_text(), 60, "it is logged")
    assert f"'{queue}' began in partition {OTHER} of {keyed}" in worker.log_text()
    await until_ready(app, queue, HOME, 3)
    await until_ready(app, queue, OTHER, 2)
    listed = told(app, "queue", "ls", "keyed.#")
    rows = [line.split() for line in listed.splitlines() if line.startswith(f"{queue} ")]
    assert sorted((row[1], row[-1]) for row in rows[:2]) == sorted(
        [(str(HOME), "3"), (str(OTHER), "2")]
    )
    for text in (listed, told(app, "queue", "show", queue), told(app, "doctor")):
        assert f"partitions {min(HOME, OTHER)}, {max(HOME, OTHER)}" in text
        assert "hop: always" in text
    traced = told(app, "trace", "--key", KEY)
    assert f"from {keyed}/{OTHER}/1 " in traced
    assert f"from {keyed}/{HOME}/2 " in traced
    assert "purged" in told(app, "queue", "purge", queue, "--yes")
    rows = json.loads(told(app, "queue", "ls", "keyed.#", "--json"))
    assert [row["counts"]["ready"] for row in rows] == [0, 0]


async def test_a_key_is_traced_although_its_producer_has_a_wrong_clock(app: Application) -> None:
    """Case C3 of issue 38: the time of the record was in seconds in place of milliseconds."""
    clock = topic(app, "clock")
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        for timestamp_ms in (0, 1_700_000):
            await producer.send_and_wait(
                clock, b"x", KEY.encode(), partition=HOME, timestamp_ms=timestamp_ms
            )
    await until_ready(app, f"clock.{KEY}", HOME, 2)
    traced = told(app, "trace", "--key", KEY)
    assert f"from {clock}/{HOME}/0 " in traced
    assert f"from {clock}/{HOME}/1 " in traced


async def test_a_worker_says_that_gaps_in_a_compacted_topic_are_not_reported(
    app: Application,
) -> None:
    """Case C4 of issue 38."""
    (worker,) = app.workers
    about = f"Topic {topic(app, 'compacted')} has cleanup.policy=compact"
    await until(lambda: "assigned:" in worker.log_text(), 60, "it runs")
    for text in (worker.log_text(), told(app, "doctor")):
        assert about in text
        assert "such a gap is not reported" in text


ODD = {
    "ringfaust-redrives": b"many", "ringfaust-handovers": b"x", "ringfaust-enqueued-ms": b"",
    "ringfaust-consumer": b"\xff", "ringfaust-cause": b"\xff", "ringfaust-id": b"\xff",
}  # fmt: skip
"""Headers that a producer may write on a record that is no message."""


async def test_an_odd_header_hides_no_dead_record_and_each_is_found_where_it_was_written(
    app: Application,
) -> None:
    """Cases A1 and S1 of issue 38: a traceback, and a place in an internal topic."""
    hopping = topic(app, "hopping")
    async with AIOKafkaProducer(bootstrap_servers=app.servers) as producer:
        for name, value in ODD.items():
            headers = [(name, value), ("ringfaust-priority", b"high")]
            await producer.send_and_wait(hopping, b"x", KEY.encode(), partition=0, headers=headers)
    async with asyncio.timeout(60):
        while told(app, "dead", "ls").count(f"{hopping}/0/") < len(ODD):
            await asyncio.sleep(0.2)
    listed = told(app, "dead", "ls")
    for offset in range(len(ODD)):
        assert f"{hopping}/0/{offset}" in listed
        assert "undecodable" in told(app, "trace", f"{hopping}/0/{offset}")
